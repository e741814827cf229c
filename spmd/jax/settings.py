"""The settings of JAX that a traced program depends on."""

from __future__ import annotations

# The key of jax.jit's own cache; nothing public has all that is in it.
from jax._src.config import trace_context

#: x64, promotion of dtypes and ranks, random numbers, precision of products, the mesh in force, ...: hashable.
Settings = tuple[object, ...]


def current() -> Settings:
    """Return the settings of this thread as they are now."""
    settings: Settings = trace_context()
    return settings
