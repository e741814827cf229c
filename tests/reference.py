"""The reference implementation of StableHLO, by way of jaxlib's bindings."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest


@cache
def context() -> Any:
    """Return what the reference's programs are read in, with ops of any dialect: one for all tests, slow to make."""
    mlir = pytest.importorskip("jax._src.interpreters.mlir", reason="the reference comes with jaxlib")
    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = True
    return context
