"""The arrays that everything computes on."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

#: An array of NumPy, of any element type and shape.
Array = npt.NDArray[Any]
