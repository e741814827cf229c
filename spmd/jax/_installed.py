"""Imported first by spmd.jax: raises a clear error if JAX is not installed."""

from spmd.errors import UsageError


class MissingJaxError(UsageError, ImportError):
    """JAX is not installed."""


try:
    import jax as jax
except ImportError as error:
    raise MissingJaxError(
        "spmd.jax needs JAX, which cannot be imported here: pip install 'spmd[jax]' installs it"
    ) from error
