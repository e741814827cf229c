"""The arrays that everything computes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy.typing as npt

from collectives.arrays import Array as Array

#: What a program takes: anything that NumPy makes an array of, a tuple for a tuple, None for a token.
Argument: TypeAlias = "npt.ArrayLike | tuple[Argument, ...] | None"
#: What a process's block is made from: a whole array, or what gives a block by one slice a dimension.
Source: TypeAlias = Array | Callable[[tuple[slice, ...]], Array]
