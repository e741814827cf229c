"""Meshes of JAX whose shardings the partitioner decides, in every version of JAX."""

from __future__ import annotations

from typing import Any


def abstract_mesh(sizes: tuple[int, ...], names: tuple[str, ...]) -> Any:
    """Return a mesh without devices. The default type of axes has been Explicit since JAX 0.12."""
    from jax.sharding import AbstractMesh, AxisType

    return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))
