"""Decompositions, transforms and normalizations. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, result
from spmd.dialects.forms import TYPED, same_types
from spmd.dialects.kinds import tensor_of_kinds

CHOLESKY = define(
    "stablehlo.cholesky",
    operands=[operand("a", kinds.FLOAT_COMPLEX_OR_QUANTIZED)],
    attributes=[attribute("lower", kinds.BOOL, default=False)],
    results=[result("result", kinds.FLOAT_COMPLEX_OR_QUANTIZED)],
    assembly="$a (`,` `lower` `=` $lower^)? " + same_types("a", "result"),
    traits=["pure"],
)

TRIANGULAR_SOLVE = define(
    "stablehlo.triangular_solve",
    operands=[operand("a", kinds.FLOAT_OR_COMPLEX), operand("b", kinds.FLOAT_OR_COMPLEX)],
    attributes=[
        attribute("left_side", kinds.BOOL),
        attribute("lower", kinds.BOOL),
        attribute("unit_diagonal", kinds.BOOL),
        attribute(
            "transpose_a",
            kinds.enum("stablehlo", "transpose", "TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
        ),
    ],
    results=[result("result", kinds.FLOAT_OR_COMPLEX)],
    traits=["pure"],
)

FFT = define(
    "stablehlo.fft",
    operands=[operand("operand", kinds.FLOAT_OR_COMPLEX)],
    attributes=[
        attribute("fft_type", kinds.enum("stablehlo", "fft_type", "FFT", "IFFT", "RFFT", "IRFFT")),
        attribute("fft_length", kinds.I64_ARRAY),
    ],
    results=[result("result", kinds.FLOAT_OR_COMPLEX)],
    assembly="$operand `,` `type` `=` $fft_type `,` `length` `=` $fft_length " + TYPED,
    traits=["pure"],
)

_FEATURES = tensor_of_kinds("float", "quantized", rank=1)
_BATCH_NORM = [attribute("epsilon", kinds.F32), attribute("feature_index", kinds.I64)]

BATCH_NORM_GRAD = define(
    "stablehlo.batch_norm_grad",
    operands=[
        operand("operand", kinds.FLOAT_OR_QUANTIZED),
        operand("scale", _FEATURES),
        operand("mean", _FEATURES),
        operand("variance", _FEATURES),
        operand("grad_output", kinds.FLOAT_OR_QUANTIZED),
    ],
    attributes=_BATCH_NORM,
    results=[
        result("grad_operand", kinds.FLOAT_OR_QUANTIZED),
        result("grad_scale", _FEATURES),
        result("grad_offset", _FEATURES),
    ],
    traits=["pure"],
)

BATCH_NORM_INFERENCE = define(
    "stablehlo.batch_norm_inference",
    operands=[
        operand("operand", kinds.FLOAT_OR_QUANTIZED),
        operand("scale", _FEATURES),
        operand("offset", _FEATURES),
        operand("mean", _FEATURES),
        operand("variance", _FEATURES),
    ],
    attributes=_BATCH_NORM,
    results=[result("result", kinds.FLOAT_OR_QUANTIZED)],
    traits=["pure"],
)

BATCH_NORM_TRAINING = define(
    "stablehlo.batch_norm_training",
    operands=[operand("operand", kinds.FLOAT_OR_QUANTIZED), operand("scale", _FEATURES), operand("offset", _FEATURES)],
    attributes=_BATCH_NORM,
    results=[
        result("output", kinds.FLOAT_OR_QUANTIZED),
        result("batch_mean", _FEATURES),
        result("batch_var", _FEATURES),
    ],
    traits=["pure"],
)
