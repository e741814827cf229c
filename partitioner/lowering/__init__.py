"""Each op becomes its local form. Files are named by family, as in spmd/dialects."""

from __future__ import annotations

from partitioner.lowering.core import Lowering, lowers

__all__ = ["Lowering", "lowers"]
