"""Decompositions, transforms and normalizations. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    Dimension,
    at_least,
    compatible_dims,
    compatible_shapes,
    dims,
    in_range,
    listed,
    same_elements,
    same_shape,
    shape_text,
    tensors,
)
from spmd.dialects.core import OpDef, Trait, attribute, define, operand, operands_of, result
from spmd.dialects.forms import TYPED, one_type
from spmd.dialects.shapes import bounds_of, tensor
from spmd.dialects.type_sets import tensor_of_kinds
from spmd.ir import Op
from spmd.types import F32, F64, ElementType, Type


def _not_square(shape: Sequence[Dimension]) -> str | None:
    return None if compatible_dims(shape[-2], shape[-1]) else shape_text(shape)


CHOLESKY = define(
    "stablehlo.cholesky",
    operands=[operand("a", type_sets.FLOAT_COMPLEX_OR_QUANTIZED)],
    attributes=[attribute("lower", kinds.BOOL, default=False)],
    results=[result("result", type_sets.FLOAT_COMPLEX_OR_QUANTIZED)],
    assembly="$a (`,` `lower` `=` $lower^)? " + one_type("a", "result"),
    traits=[Trait.PURE],
)

CHOLESKY.constraint("C2", "2 <= rank(a)")(lambda op: at_least(op.operands[0].tensor.rank, 2))
CHOLESKY.constraint("C3", "dim(a, -2) = dim(a, -1)")(lambda op: _not_square(op.operands[0].tensor.shape))
CHOLESKY.infers("C1", "baseline_type(a) = baseline_type(result)")(lambda op: [op.operands[0].type])

TRIANGULAR_SOLVE = define(
    "stablehlo.triangular_solve",
    operands=[operand("a", type_sets.FLOAT_COMPLEX_OR_QUANTIZED), operand("b", type_sets.FLOAT_COMPLEX_OR_QUANTIZED)],
    attributes=[
        attribute("left_side", kinds.BOOL),
        attribute("lower", kinds.BOOL),
        attribute("unit_diagonal", kinds.BOOL),
        attribute(
            "transpose_a",
            kinds.enum("stablehlo", "transpose", "TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
        ),
    ],
    results=[result("result", type_sets.FLOAT_COMPLEX_OR_QUANTIZED)],
    traits=[Trait.PURE],
)

TRIANGULAR_SOLVE.constraint("C1", "baseline_element_type(a) = baseline_element_type(b)")(
    lambda op: same_elements(*op.operand_types)
)


@TRIANGULAR_SOLVE.constraint("C2", "2 <= rank(a) = rank(b)")
def _(op: Op) -> str | None:
    ranks = [type.rank for type in tensors(op.operands)]
    return None if 2 <= ranks[0] == ranks[1] else listed(ranks)


@TRIANGULAR_SOLVE.constraint("C3", "dim(a, -2) = dim(a, -1) = dim(b, left_side ? -2 : -1), and batch dimensions agree")
def _(op: Op) -> str | None:
    a, b = (type.shape for type in tensors(op.operands))
    shared = b[-2] if op["left_side"] else b[-1]
    sound = compatible_shapes(a[:-2], b[:-2]) and _not_square(a) is None and compatible_dims(a[-1], shared)
    return None if sound else f"{shape_text(a)} and {shape_text(b)}"


TRIANGULAR_SOLVE.constraint("I6", "transpose_a is NO_TRANSPOSE, TRANSPOSE or ADJOINT")(
    lambda op: op["transpose_a"] if op["transpose_a"] == "TRANSPOSE_INVALID" else None
)
TRIANGULAR_SOLVE.infers("C4", "baseline_type(b) = baseline_type(result)")(lambda op: [op.operands[1].type])

FFT = define(
    "stablehlo.fft",
    operands=[operand("operand", type_sets.FLOAT_OR_COMPLEX)],
    attributes=[
        attribute("fft_type", kinds.enum("stablehlo", "fft_type", "FFT", "IFFT", "RFFT", "IRFFT")),
        attribute("fft_length", kinds.I64_ARRAY),
    ],
    results=[result("result", type_sets.FLOAT_OR_COMPLEX)],
    assembly="$operand `,` `type` `=` $fft_type `,` `length` `=` $fft_length " + TYPED,
    traits=[Trait.PURE],
)

FFT.constraint("C3", "1 <= size(fft_length) <= 3")(
    lambda op: None if 1 <= len(op["fft_length"]) <= 3 else str(len(op["fft_length"]))
)


@FFT.constraint("", "0 < fft_length, or 0 if the operand's dimension is 0")
def _(op: Op) -> str | None:
    length, shape = op["fft_length"], op.operands[0].tensor.shape
    pairs = zip(reversed(length), reversed(shape), strict=False)
    return None if all(size > 0 or size == dimension == 0 for size, dimension in pairs) else dims(length)


@FFT.constraint("C1", "size(fft_length) <= rank(operand)")
def _(op: Op) -> str | None:
    size, rank = len(op["fft_length"]), op.operands[0].tensor.rank
    return None if size <= rank else f"{size} and {rank}"


@FFT.constraint("C2", "elements must be complex for FFT, IFFT and IRFFT, and f32 or f64 for RFFT")
def _(op: Op) -> str | None:
    element = op.operands[0].tensor.element_type
    assert isinstance(element, ElementType)
    sound = element in (F32, F64) if op["fft_type"] == "RFFT" else element.is_complex
    return None if sound else f"{op['fft_type']} of {element}"


@FFT.constraint(
    "C2", "elements of the result must be complex for RFFT, and the operand's real part for IRFFT", on_results=True
)
def _(op: Op) -> str | None:
    given, element = op.result.tensor.element_type, _transformed(op)
    return None if given is element else f"{given} of {op.operands[0].tensor.element_type} by {op['fft_type']}"


def _transformed(op: Op) -> ElementType:
    """Return the element type of a transform's result."""
    element = op.operands[0].tensor.element_type
    assert isinstance(element, ElementType)
    if op["fft_type"] == "RFFT":
        return element.complex
    return element.real if op["fft_type"] == "IRFFT" else element


@FFT.constraint("C4", "the last dimensions, of the real tensor for RFFT and IRFFT, must be fft_length")
def _(op: Op) -> str | None:
    length, kind, shape = op["fft_length"], op["fft_type"], op.operands[0].tensor.shape
    last = shape[-len(length) :]
    if kind == "RFFT":
        sound = compatible_shapes(last, length)
    elif kind == "IRFFT":
        halved = length[-1] // 2 + 1
        sound = compatible_shapes(last[:-1], length[:-1]) and (
            compatible_dims(last[-1], halved) or (length[-1] == 0 and last[-1] == 0)
        )
    else:
        sound = compatible_shapes(last, length)
    return None if sound else f"{shape_text(shape)} and {dims(length)}"


@FFT.infers("C5", "shape(result) = shape(operand) but for the last dimension of RFFT and IRFFT")
def _(op: Op) -> list[Type]:
    operand, length, kind = op.operands[0].tensor, op["fft_length"], op["fft_type"]
    shape, bounds = list(operand.shape), list(bounds_of(operand))
    if kind in ("RFFT", "IRFFT"):
        bounds[-1] = None
    if kind == "RFFT":
        shape[-1] = length[-1] // 2 + 1 if length[-1] else shape[-1]
    elif kind == "IRFFT":
        shape[-1] = length[-1]
    return [tensor(shape, _transformed(op), bounds)]


_FEATURES = tensor_of_kinds("float", "quantized", rank=1)


def _check_batch_norm(declared: OpDef, whole: Sequence[str], features: dict[str, str], results: str) -> None:
    """Declare the constraints on a batch normalization.

    `whole` names the operands of full shape, `features` the label of each operand with one entry per feature, `results`
    the labels of the result types.
    """

    def alike(op: Op) -> str | None:
        return same_shape(*(op.operand(name).type for name in features))

    declared.constraint("C2", "all operands must have one baseline_element_type")(
        lambda op: same_elements(*op.operand_types)
    )
    if len(whole) > 1:
        declared.constraint("C3", f"{listed(whole)} must have the same shape")(
            lambda op: same_shape(*(op.operand(name).type for name in whole))
        )
    declared.constraint("C1", "0 <= feature_index < rank(operand)")(
        lambda op: in_range([op["feature_index"]], op.operands[0].tensor.rank)
    )
    if len(whole) > 1:
        declared.constraint("C4", f"{listed(features)} must have the same shape")(alike)
    for name, label in features.items():

        def sized(op: Op, name: str = name) -> str | None:
            sizes = op.operand(name).tensor.shape[0], op.operands[0].tensor.shape[op["feature_index"]]
            return None if compatible_dims(*sizes) else listed(sizes)

        declared.constraint(label, f"size({name}) = dim(operand, feature_index)")(sized)
    if len(whole) == 1:  # sizes that match a dynamic feature dimension need not match each other
        declared.constraint("", f"{listed(features)} must have the same shape")(alike)

    @declared.infers(results, "results have the type of the operand and of its features")
    def _(op: Op) -> list[Type]:
        operand, feature = op.operands[0].tensor, op["feature_index"]
        of_features = tensor([operand.shape[feature]], operand.element_type, [bounds_of(operand)[feature]])
        types: list[Type] = [operand, of_features, of_features]
        return types[: len(declared.results)]


def _batch_norm(
    kind: str, whole: Sequence[str], features: dict[str, str], results: Sequence[str], labels: str
) -> OpDef:
    """Declare a batch normalization, whose first operand and first result have full shape.

    `whole` and `features` are as for `_check_batch_norm`; `labels` those of the types of `results`.
    """
    full = type_sets.FLOAT_OR_QUANTIZED
    declared = define(
        f"stablehlo.batch_norm_{kind}",
        operands=[operand(whole[0], full), *operands_of(_FEATURES, *features), *operands_of(full, *whole[1:])],
        attributes=[attribute("epsilon", kinds.F32), attribute("feature_index", kinds.I64)],
        results=[result(results[0], full), *operands_of(_FEATURES, *results[1:])],
        traits=[Trait.PURE],
    )
    _check_batch_norm(declared, whole, features, labels)
    return declared


BATCH_NORM_GRAD = _batch_norm(
    "grad",
    ["operand", "grad_output"],
    {"scale": "C5", "mean": "C5", "variance": "C5"},
    ["grad_operand", "grad_scale", "grad_offset"],
    "C3, C4",
)
BATCH_NORM_INFERENCE = _batch_norm(
    "inference", ["operand"], {"scale": "C3", "offset": "C4", "mean": "C5", "variance": "C6"}, ["result"], "C7"
)
BATCH_NORM_TRAINING = _batch_norm(
    "training", ["operand"], {"scale": "C3", "offset": "C4"}, ["output", "batch_mean", "batch_var"], "C5, C6, C7"
)
