"""How JAX finds spmd's client: it imports this module wherever spmd is installed, so there is next to nothing in it."""

import sys
from typing import Any


def initialize() -> None:
    """Register the client with JAX, where JAX_PLATFORMS (or jax_platforms) names it; otherwise nothing happens."""
    jax: Any = sys.modules["jax"]
    if "spmd" in (jax.config.jax_platforms or "").split(","):
        from spmd.jax.plugin import register  # late: nothing of spmd is loaded where it is not named

        register()
