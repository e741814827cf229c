"""The settings of JAX that a traced program, or its execution, depends on."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

# The key of jax.jit's own cache; no public function returns it.
from jax._src.config import trace_context

_config: Any = jax.config


class JaxSettings(NamedTuple):
    """Hashable settings of JAX.

    `context` has x64, promotion of dtypes and ranks, random numbers, precision of products, the current mesh, ...;
    `nans` and `infs` are jax_debug_nans and jax_debug_infs, under which results are checked.
    """

    context: object
    nans: bool
    infs: bool


def current() -> JaxSettings:
    """Return this thread's current settings."""
    return JaxSettings(trace_context(), _config.jax_debug_nans, _config.jax_debug_infs)


def is_jit_disabled() -> bool:
    """Return whether jax_disable_jit is set in this thread."""
    return bool(_config.jax_disable_jit)
