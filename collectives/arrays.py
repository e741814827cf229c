"""The arrays that travel."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

#: An array of NumPy, of any element type and shape.
Array: TypeAlias = npt.NDArray[Any]
