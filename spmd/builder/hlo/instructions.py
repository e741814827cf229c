"""What each HLO opcode is in terms of the builder's operations.

`metadata`, layouts and the like are ignored (see parser.py); an unread attribute is an error.
"""

from __future__ import annotations

import functools
import re
from dataclasses import fields
from typing import TypeVar
from warnings import warn

import numpy as np

from spmd.builder import checks, ops
from spmd.builder.computation import region_of
from spmd.builder.hlo.algorithms import read_algorithm
from spmd.builder.hlo.bits import reinterpreted
from spmd.builder.hlo.mixed import as_text, folded, of_one_type, reducer
from spmd.builder.hlo.opcodes import PLAIN
from spmd.builder.hlo.parser import INSTRUCTIONS, Call, Make, flat, instruction
from spmd.builder.hlo.reader import split
from spmd.builder.literal import parse_values
from spmd.builder.options import DotDimensionNumbers, GatherDimensionNumbers, PaddingConfig, ScatterDimensionNumbers
from spmd.builder.shape import Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp
from spmd.dialects.custom_call import RNG_STATE
from spmd.dialects.scatters import SCATTER, mark_whole_windows
from spmd.dialects.structs import RaggedDotDimensionNumbersAttr
from spmd.ir import AttributeValue
from spmd.support.arrays import Array
from spmd.types import Type

N = TypeVar("N", GatherDimensionNumbers, ScatterDimensionNumbers)


def _plain(operation: str, call: Call) -> XlaOp:
    return as_text(call, OPERATIONS[operation](*of_one_type(call.operands())))


for _opcode, (_, _operation) in PLAIN.items():
    INSTRUCTIONS[_opcode] = functools.partial(_plain, _operation)

#: Instructions that are one operation on what the text says, as it says it.
_DIRECT: dict[str, Make] = {
    "parameter": lambda call: call.builder.parameter(int(call.text), call.shape, call.instruction.name),
    "constant": lambda call: _constant(call, call.text, call.shape),
    "iota": lambda call: call.builder.Iota(call.shape, call.integer("iota_dimension")),
    "copy": lambda call: as_text(call, call.operand()),
    "tuple": lambda call: call.builder.Tuple(call.operands()),
    "get-tuple-element": lambda call: ops.GetTupleElement(call.operand(), call.integer("index")),
    "convert": lambda call: ops.ConvertElementType(call.operand(), call.shape.xla_element_type()),
    "bitcast-convert": lambda call: reinterpreted(call.operand(), call.shape.xla_element_type()),
    "transpose": lambda call: ops.Transpose(call.operand(), call.integers("dimensions")),
    "reverse": lambda call: ops.Rev(call.operand(), call.integers("dimensions")),
    "concatenate": lambda call: as_text(
        call, ops.Concatenate(of_one_type(call.operands()), call.dimension("dimensions"))
    ),
    "get-dimension-size": lambda call: ops.GetDimensionSize(call.operand(), call.dimension("dimensions")),
    "fft": lambda call: ops.Fft(call.operand(), call.attribute("fft_type"), call.integers("fft_length")),
    "cholesky": lambda call: ops.Cholesky(call.operand(), call.flag("lower")),
}
INSTRUCTIONS.update(_DIRECT)


def _constant(call: Call, text: str, shape: Shape) -> XlaOp:
    """Return a constant, of a tuple the tuple of its parts.

    Values that the text leaves out are drawn, the same in every run, with a warning.
    """
    if shape.is_tuple():
        texts = split("{" + text.strip().removeprefix("(").removesuffix(")") + "}")
        return call.builder.Tuple([_constant(call, *pair) for pair in zip(texts, shape.parts, strict=True)])
    array = call.constant(text)
    if array is None:
        array = _drawn(call, shape) if "..." in text else parse_values(text, shape)
    return XlaOp(call.builder, call.builder.constant(array))


def _drawn(call: Call, shape: Shape) -> Array:
    warn(
        f"{call.instruction.location}: the values of a constant of shape {shape.brief} are left out of the text; "
        "random ones stand for them (--xla_dump_large_constants has them printed)",
        stacklevel=2,
    )
    sizes = shape.sizes if shape.size() <= _MOST_DRAWN else ()
    return np.broadcast_to(np.random.default_rng(0).uniform(0, 2, sizes).astype(shape.numpy_dtype()), shape.sizes)


#: A constant of more elements, of which the text has none, is one random number in all places.
_MOST_DRAWN = 1 << 22


# --- elementwise -----------------------------------------------------------------------------------------------------


@instruction("compare")
def _compare(call: Call) -> XlaOp:
    name = call.attribute("direction").capitalize()
    total = call.attribute("type", "") == "TOTALORDER" or call.attribute("order", "") == "TOTAL"
    return OPERATIONS[name + ("TotalOrder" if total else "")](*call.operands(2))


@instruction("stochastic-convert")
def _stochastic_convert(call: Call) -> XlaOp:
    """Return the integer below or above in size, the one above as often as random bits, read as a fraction, are below
    x's."""
    operand, random = call.operands(2)
    size = ops.Abs(operand)
    whole = ops.Floor(size)
    kind, bits = operand.shape.xla_element_type(), random.shape.xla_element_type().element_type.bits
    unsigned = ops.BitcastConvertType(random, f"u{bits}")
    scale = ops.ConvertElementType(call.builder.Constant(np.float32(2.0**-bits)), kind)
    above = ops.Lt(ops.Mul(ops.ConvertElementType(unsigned, kind), scale), ops.Sub(size, whole))
    signed = ops.Mul(ops.Sign(operand), ops.Add(whole, ops.ConvertElementType(above, kind)))
    return ops.ConvertElementType(signed, call.shape.xla_element_type())


@instruction("reduce-precision")
def _reduce_precision(call: Call) -> XlaOp:
    mantissa, exponent = call.integer("mantissa_bits"), call.integer("exponent_bits")
    return ops.ReducePrecision(call.operand(), mantissa, exponent)


# --- data movement ---------------------------------------------------------------------------------------------------


def _is_made_static(call: Call) -> bool:
    """Return whether the text says that a static array is made of one with dynamic dimensions: it has padding in it."""
    return call.shape.is_static() and call.operand().shape.is_dynamic()


def _static(call: Call, name: str, attributes: dict[str, AttributeValue]) -> XlaOp:
    value, kind = checks.array(call.builder, call.operand(), "operand"), call.shape.tensor
    (result,) = call.builder.emit(name, [value], attributes, [kind])
    result.type = kind
    return XlaOp(call.builder, result)


@instruction("broadcast")
def _broadcast(call: Call) -> XlaOp:
    dimensions = call.integers("dimensions", None if call.operand().shape.rank() else "{}")
    if _is_made_static(call):
        return _static(call, "stablehlo.broadcast_in_dim", {"broadcast_dimensions": tuple(dimensions)})
    return as_text(call, ops.BroadcastInDim(call.operand(), call.shape.sizes, dimensions))


@instruction("reshape")
def _reshape(call: Call) -> XlaOp:
    inferred = call.integer("inferred_dimension", -1)
    if _is_made_static(call):
        return _static(call, "stablehlo.reshape", {})
    return ops.Reshape(call.operand(), call.shape.sizes, inferred_dimension=inferred)


@instruction("dynamic-reshape")
def _dynamic_reshape(call: Call) -> XlaOp:
    """Return the sizes of the result, each an operand; the shape of the text holds their bounds."""
    operand, *sizes = call.operands()
    if len(sizes) != call.shape.rank():
        raise ValueError(f"{len(sizes)} sizes for a result of rank {call.shape.rank()}")
    shape = ops.Concatenate([ops.Reshape(size, (1,)) for size in sizes], 0)
    values = checks.arrays(call.builder, [operand, shape], "operands")
    return call.builder.emit_one("stablehlo.dynamic_reshape", values, {}, call.shape.tensor)


@instruction("slice")
def _slice(call: Call) -> XlaOp:
    text = call.attribute("slice")
    ranges = [[int(n) for n in part.strip("[]").split(":")] for part in split(text)]
    if any(len(entry) not in (2, 3) for entry in ranges):
        raise ValueError(f"slice is start:limit or start:limit:stride for each dimension, got {text}")
    starts, limits = [entry[0] for entry in ranges], [entry[1] for entry in ranges]
    return ops.Slice(call.operand(), starts, limits, [entry[2] if len(entry) > 2 else 1 for entry in ranges])


@instruction("pad")
def _pad(call: Call) -> XlaOp:
    operand, value = of_one_type(call.operands(2))
    text = call.attribute("padding")
    config = PaddingConfig([[int(n) for n in part.split("_")] for part in text.split("x")] if text else [])
    return as_text(call, ops.Pad(operand, value, config))


@instruction("topk")
def _top_k(call: Call) -> XlaOp:
    call.flag("is_stable")  # of equal values the first come first, whether or not that is required
    return ops.TopK(call.operand(), call.integer("k"), call.flag("largest"))


@instruction("sort")
def _sort(call: Call) -> XlaOp:
    dimension, comparator = call.dimension("dimensions"), call.computation("to_apply")
    return ops.Sort(flat(call.operands()), comparator, dimension, call.flag("is_stable"))


@instruction("scan")
def _scan(call: Call) -> XlaOp:
    """Apply a computation to slices of the first operands along a dimension, one after another, with carries that begin
    as the last operands; the results are the slices that it returns, side by side, and the last carries."""
    operands = checks.arrays(call.builder, call.operands(), "operands")
    dimension, carries = call.dimension("dimensions"), call.integer("num_carries")
    inputs = len(operands) - carries
    slices: list[Type] = [
        tensor.with_shape((*tensor.shape[:dimension], *tensor.shape[dimension + 1 :]))
        for tensor in (value.tensor for value in operands[:inputs])
    ]
    step = call.computation("to_apply")
    call.builder.use(step)
    body = region_of(step, [*slices, *(value.type for value in operands[inputs:])])
    returned = len(body.block.terminator.operands)
    attributes: dict[str, AttributeValue] = {
        "dimension": dimension,
        "is_reverse": call.flag("is_reverse"),
        "operandSegmentSizes": (inputs, carries),
        "resultSegmentSizes": (returned - carries, carries),
    }
    if call.has("is_associative"):
        attributes["is_associative"] = call.flag("is_associative")
    results = call.builder.emit("chlo.scan", operands, attributes, None, [body])
    return call.builder.collate(results) if call.is_single() else call.builder.tuple(results)


@instruction("set-dimension-size")
def _set_dimension_size(call: Call) -> XlaOp:
    operand, size = call.operands(2)
    return ops.SetDimensionSize(operand, size, call.dimension("dimensions"))


# --- indexing --------------------------------------------------------------------------------------------------------


@instruction("dynamic-slice")
def _dynamic_slice(call: Call) -> XlaOp:
    operand, *starts = call.operands()
    return ops.DynamicSlice(operand, _starts(starts, operand), call.integers("dynamic_slice_sizes"))


@instruction("dynamic-update-slice")
def _dynamic_update_slice(call: Call) -> XlaOp:
    operand, update, *starts = of_one_type(call.operands())
    return as_text(call, ops.DynamicUpdateSlice(operand, update, _starts(starts, operand)))


def _starts(starts: list[XlaOp], operand: XlaOp) -> XlaOp | list[XlaOp]:
    vector = len(starts) == 1 and starts[0].shape.rank() == 1
    return starts[0] if vector else starts


def _numbers(call: Call, kind: type[N]) -> N:
    """Return dimension numbers, each an attribute of its name; those of batching dimensions may be missing."""
    values = {
        name: call.integers(name, "{}" if "batching" in name else None)
        for name in [each.name for each in fields(kind)]
        if name != "index_vector_dim"
    }
    return kind(**values, index_vector_dim=call.integer("index_vector_dim"))


@instruction("gather")
def _gather(call: Call) -> XlaOp:
    operand, indices = call.operands(2)
    numbers = _numbers(call, GatherDimensionNumbers)
    ordered = call.flag("indices_are_sorted")
    sizes = call.integers("slice_sizes")
    return ops.Gather(operand, indices, dimension_numbers=numbers, slice_sizes=sizes, indices_are_sorted=ordered)


@instruction("scatter")
def _scatter(call: Call) -> XlaOp:
    """Return XLA's scatter: a window with any element outside of the operands is skipped whole."""
    operands = of_one_type(call.operands())
    count = len(operands) // 2
    numbers = _numbers(call, ScatterDimensionNumbers)
    result = ops.Scatter(
        flat(operands[:count]),
        operands[count],
        flat(operands[count + 1 :]),
        reducer(call.computation("to_apply"), operands[:count]),
        dimension_numbers=numbers,
        indices_are_sorted=call.flag("indices_are_sorted"),
        unique_indices=call.flag("unique_indices"),
    )
    mark_whole_windows(next(op for op in reversed(call.builder.block.ops) if op.name == SCATTER))
    return as_text(call, result)


# --- contraction -----------------------------------------------------------------------------------------------------


def precision(call: Call) -> list[str] | None:
    """Read `operand_precision={highest,default}`."""
    names = [part.upper() for part in split(call.attribute("operand_precision", "{}"))]
    return names or None


@instruction("dot")
def _dot(call: Call) -> XlaOp:
    lhs, rhs = call.operands(2)
    names = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    numbers = DotDimensionNumbers(*(call.integers(name, "{}") for name in names))
    result = ops.DotGeneral(lhs, rhs, numbers, precision(call), call.element_type())
    dot = result.value.defining_op if result.value is not None else None
    if call.has("algorithm") and dot is not None:
        types = [value.tensor.element_type for value in dot.operands]
        dot.attributes = {**dot.attributes, "algorithm": read_algorithm(call.attribute("algorithm"), *types)}
    return result


@instruction("ragged-dot")
def _ragged_dot(call: Call) -> XlaOp:
    names = (
        "lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims", "lhs_ragged_dims",
        "rhs_group_dims",
    )  # fmt: skip
    numbers = RaggedDotDimensionNumbersAttr(*(tuple(call.integers(name, "{}")) for name in names))
    attributes = {"ragged_dot_dimension_numbers": numbers}
    precisions = precision(call)
    if precisions is not None:
        attributes["precision_config"] = tuple(precisions)  # type: ignore[assignment]
    operands = checks.arrays(call.builder, call.operands(3), "operands")
    return call.builder.emit_one("chlo.ragged_dot", operands, attributes, call.shape.tensor)


@instruction("triangular-solve")
def _triangular_solve(call: Call) -> XlaOp:
    a, b = call.operands(2)
    left, lower, unit = (call.flag(name) for name in ("left_side", "lower", "unit_diagonal"))
    return ops.TriangularSolve(a, b, left, lower, unit, call.attribute("transpose_a", "NO_TRANSPOSE"))


@instruction("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def _batch_norm(call: Call) -> XlaOp:
    name = "".join(word.capitalize() for word in call.instruction.opcode.split("-"))
    epsilon, feature = float(call.attribute("epsilon")), call.integer("feature_index")
    return OPERATIONS[name](*call.operands(), epsilon, feature)


# --- random ----------------------------------------------------------------------------------------------------------


@instruction("rng")
def _rng(call: Call) -> XlaOp:
    one, two = call.operands(2)
    normal = call.attribute("distribution") == "rng_normal"
    return (ops.RngNormal if normal else ops.RngUniform)(one, two, call.shape)


@instruction("rng-bit-generator")
def _rng_bit_generator(call: Call) -> XlaOp:
    algorithm, state = call.attribute("algorithm").upper(), call.operand()
    if call.shape.is_tuple():
        return ops.RngBitGenerator(algorithm, state, call.shape.parts[1])
    return ops.GetTupleElement(ops.RngBitGenerator(algorithm, state, call.shape), 1)


@instruction("rng-get-and-update-state")
def _rng_state(call: Call) -> XlaOp:
    delta = str(call.integer("delta"))
    return call.builder.CustomCall(RNG_STATE, call.operands(0), call.shape, delta, True)


# --- windows ---------------------------------------------------------------------------------------------------------


class WindowConfig:
    """`window={size=3x3 stride=2x2 pad=1_1x0_0 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x0}`."""

    def __init__(self, text: str, rank: int) -> None:
        fields = dict(re.findall(r"(\w+)=([^\s{}]+)", text))
        self.size = self._numbers(fields.pop("size", ""), rank)
        self.strides = self._numbers(fields.pop("stride", ""), rank)
        self.base_dilations = self._numbers(fields.pop("lhs_dilate", ""), rank)
        self.window_dilations = self._numbers(fields.pop("rhs_dilate", ""), rank)
        self.reversal = [part == "1" for part in fields.pop("rhs_reversal", "").split("x") if part] or None
        pads = fields.pop("pad", "")
        pairs = [part.split("_") for part in pads.split("x")] if pads else [("0", "0")] * rank
        self.padding = [(int(low), int(high)) for low, high in pairs]
        if fields:
            raise ValueError(f"window: {min(fields)} is not understood")

    @staticmethod
    def _numbers(text: str, rank: int) -> list[int]:
        return [int(part) for part in text.split("x")] if text else [1] * rank


@instruction("reduce-window")
def _reduce_window(call: Call) -> XlaOp:
    operands = call.operands()
    count = len(operands) // 2
    inputs, starts, fold = folded(operands[:count], operands[count:], call.computation("to_apply"))
    window = WindowConfig(call.attribute("window", "{}"), operands[0].shape.rank())
    result = ops.ReduceWindow(
        flat(inputs), flat(starts), fold, window.size, window.strides, window.padding, window.base_dilations,
        window.window_dilations,
    )  # fmt: skip
    return as_text(call, result)


@instruction("select-and-scatter")
def _select_and_scatter(call: Call) -> XlaOp:
    operand, source, start = of_one_type(call.operands(3))
    window = WindowConfig(call.attribute("window", "{}"), operand.shape.rank())
    select, scatter = (reducer(call.computation(name), [operand]) for name in ("select", "scatter"))
    result = ops.SelectAndScatter(operand, select, window.size, window.strides, window.padding, source, start, scatter)
    return as_text(call, result)
