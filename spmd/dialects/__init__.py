"""What an op is: one declaration an op. Importing this package declares all of them."""

from __future__ import annotations

from spmd.dialects import (
    arith,
    asynchronous,
    builtin,
    check,
    chlo,
    chlo_structured,
    collective,
    communication,
    contraction,
    control_flow,
    convolving,
    custom_call,
    data_movement,
    dynamism,
    elementwise,
    func,
    indexing,
    linear_algebra,
    quantization,
    random,
    reduction,
    scattering,
    sdy,
    shape,
    sorting,
    tensor,
)
from spmd.dialects.core import OPS, OpDef

__all__ = [
    "OPS", "OpDef", "arith", "asynchronous", "builtin", "check", "chlo", "chlo_structured", "collective",
    "communication", "contraction", "control_flow", "convolving", "custom_call", "data_movement", "dynamism",
    "elementwise", "func", "indexing", "linear_algebra", "quantization", "random", "reduction", "scattering", "sdy",
    "shape", "sorting", "tensor",
]  # fmt: skip
