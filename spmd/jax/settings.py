"""The settings of JAX that a traced program, or the run of it, depends on."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

# The key of jax.jit's own cache; nothing public has all that is in it.
from jax._src.config import trace_context

_config: Any = jax.config


class Settings(NamedTuple):
    """Settings of JAX, hashable.

    `context` has x64, promotion of dtypes and ranks, random numbers, precision of products, the mesh in force, ...;
    `nans` and `infs` are jax_debug_nans and jax_debug_infs: results are looked through.
    """

    context: object
    nans: bool
    infs: bool


def current() -> Settings:
    """Return the settings of this thread as they are now."""
    return Settings(trace_context(), _config.jax_debug_nans, _config.jax_debug_infs)


def is_jit_disabled() -> bool:
    """Return whether jax_disable_jit is set in this thread."""
    return bool(_config.jax_disable_jit)
