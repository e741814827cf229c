"""The arrays that everything computes on."""

from __future__ import annotations

from collectives.arrays import Array as Array
