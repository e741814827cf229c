"""HLO instructions that run computations, or send data to other processes and to the host."""

from __future__ import annotations

import re

import numpy as np

from spmd.builder import checks, ops
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation
from spmd.builder.hlo.aliases import read_aliases
from spmd.builder.hlo.collective import TRANSFER_PAIRS, read_pairs
from spmd.builder.hlo.instructions import WindowConfig, precision
from spmd.builder.hlo.manual import TO_GLOBAL, TO_LOCAL, read_manual_call
from spmd.builder.hlo.mixed import as_text, folded, of_one_type
from spmd.builder.hlo.parser import IGNORED, Call, flat, instruction
from spmd.builder.hlo.reader import split, unquoted
from spmd.builder.options import ChannelHandle, ChannelType, ConvolutionDimensionNumbers
from spmd.builder.shape import U32, Shape
from spmd.builder.xla_op import XlaOp
from spmd.dialects import OPS
from spmd.dialects.custom_call import TYPED_TEXT
from spmd.dialects.custom_call_targets import HINTS, is_by_columns, is_declared
from spmd.ir import Op
from spmd.ir.attributes import StringAttr
from spmd.types import ElementType


@instruction("convolution")
def _convolution(call: Call) -> XlaOp:
    lhs, rhs = of_one_type(call.operands(2))
    window = WindowConfig(call.attribute("window", "{}"), lhs.shape.rank() - 2)
    return ops.ConvGeneralDilated(
        lhs,
        rhs,
        window.strides,
        window.padding,
        window.base_dilations,
        window.window_dilations,
        _labels(call.attribute("dim_labels")),
        call.integer("feature_group_count", 1),
        call.integer("batch_group_count", 1),
        precision(call),
        call.element_type(),
        window.reversal,
    )


def _labels(text: str) -> ConvolutionDimensionNumbers:
    """Read `b01f_01io->b01f`: batch, feature, input, output and the number of each spatial dimension."""
    match = re.fullmatch(r"(\w+)_(\w+)->(\w+)", text)
    if match is None:
        raise ValueError(f"dim_labels={text} are no dimension labels such as b01f_01io->b01f")
    numbers: list[int | list[int]] = []
    for labels, first, second in ((match[1], "b", "f"), (match[2], "o", "i"), (match[3], "b", "f")):
        space = [labels.index(str(n)) for n in range(len(labels) - 2)]
        numbers += [labels.index(first), labels.index(second), space]
    return ConvolutionDimensionNumbers(*numbers)  # type: ignore[arg-type]


# --- computations ----------------------------------------------------------------------------------------------------


@instruction("reduce")
def _reduce(call: Call) -> XlaOp:
    operands = call.operands()
    count = len(operands) // 2
    inputs, starts, fold = folded(operands[:count], operands[count:], call.computation("to_apply"))
    return as_text(call, ops.Reduce(flat(inputs), flat(starts), fold, call.integers("dimensions")))


@instruction("map")
def _map(call: Call) -> XlaOp:
    operands = call.operands()
    dimensions = call.integers("dimensions") if call.has("dimensions") else range(operands[0].shape.rank())
    return ops.Map(operands, call.computation("to_apply"), dimensions)


@instruction("call")
def _call(call: Call) -> XlaOp:
    computation = call.computation("to_apply")
    if not call.flag("is_composite"):
        return ops.Call(computation, call.operands(), builder=call.builder)  # type: ignore[call-arg]
    attributes, name = call.frontend("composite.attributes", "{}"), call.frontend("composite.name")
    version = int(call.frontend("composite.version", "0"))
    return call.builder.CompositeCall(computation, call.operands(), name, attributes, version)


@instruction("fusion")
def _fusion(call: Call) -> XlaOp:
    """Call what was fused, a computation like any other: how it is run is not part of its meaning."""
    call.attribute("kind", "")
    return ops.Call(call.computation("calls"), call.operands(), builder=call.builder)  # type: ignore[call-arg]


@instruction("conditional")
def _conditional(call: Call) -> XlaOp:
    chooser, *operands = call.operands()
    if call.has("true_computation"):
        yes, no = call.computation("true_computation"), call.computation("false_computation")
        return ops.Conditional(chooser, operands[0], yes, operands[1], no)
    return ops.Conditional(chooser, call.computations("branch_computations"), operands)


@instruction("while")
def _while(call: Call) -> XlaOp:
    return ops.While(call.computation("condition"), call.computation("body"), call.operand())


_TYPED = 4  # the calling convention whose configuration is a dictionary


@instruction("custom-call")
def _custom_call(call: Call) -> XlaOp:
    effect = call.flag("custom_call_has_side_effect")
    versions = {
        "API_VERSION_STATUS_RETURNING": 2,
        "API_VERSION_STATUS_RETURNING_UNIFIED": 3,
        "API_VERSION_TYPED_FFI": 4,
    }
    version = versions.get(call.attribute("api_version", ""), 1)
    config = call.attribute("backend_config", "{}") if version == _TYPED else call.string("backend_config")
    target = call.string("custom_call_target")
    if target == "xla.sdy.FuncResultSharding":  # says where a result lies, as the root's sharding does
        return call.operand()
    if target in (TO_LOCAL, TO_GLOBAL):
        return read_manual_call(call, target)
    if target == "TopK":
        return _top_k(call)
    if target == "GetRngSeed":  # the seed of a run, which XLA draws and the text has not: the same in all runs here
        return call.builder.Constant(np.uint64(0))
    if target.startswith("chlo.") and target in OPS and not call.shape.is_tuple():  # which HLO has no opcode for
        operands = checks.arrays(call.builder, call.operands(), "operands")
        return call.builder.emit_one(target, operands, {}, call.shape.tensor)
    called = call.computations("called_computations") if call.has("called_computations") else []
    if target == "HostExecute" and len(called) == 1:
        return ops.Call(called[0], call.operands(), builder=call.builder)  # type: ignore[call-arg]
    is_text = version == _TYPED and not config.startswith("{")  # which is kept as it is
    given = "" if is_text else config
    aliases = read_aliases(call.attribute("output_to_operand_aliasing", "{}"))
    result = call.builder.CustomCall(
        target, _operands(call, target), call.shape, given, effect, version, _layouts(call, target), aliases
    )
    if called:
        _keep_computations(call, called)
    if is_text:
        op = _call_of(call)
        op.discardable = {**op.discardable, TYPED_TEXT: StringAttr(unquoted(config).encode())}
    if not is_declared(target):
        _keep_attributes(call)
    return result


def _operands(call: Call, target: str) -> list[XlaOp]:
    """Return the operands of a call; of a hint, which gives its operands back, the parts of a tuple."""
    operands = call.operands()
    if target not in HINTS or len(operands) != 1 or not operands[0].shape.is_tuple():
        return operands
    return [ops.GetTupleElement(operands[0], index) for index in range(len(operands[0].shape.parts))]


def _layouts(call: Call, target: str) -> list[Shape] | None:
    """Return the shapes of the operands where layouts matter: where the text has constraints or others than rows, and
    where the target has matrices by columns; None for other calls, and where tuples are operands."""
    text = call.attribute("operand_layout_constraints", "")
    shapes = [Shape.parse(part) for part in split(text)] if text else call.operand_shapes()
    leaves = [*shapes, *call.shape.leaves()]
    plain = not text and not is_by_columns(target) and all(_is_row_major(shape) for shape in leaves)
    return None if plain or any(shape.is_tuple() for shape in shapes) else shapes


def _is_row_major(shape: Shape) -> bool:
    layout = shape.layout()
    return layout is None or layout.is_default


def _top_k(call: Call) -> XlaOp:
    """Return the first of the last dimension in the order of the computation that is called: the largest where none
    is."""
    name = "to_apply" if call.has("to_apply") else "called_computations"
    called = call.computations(name) if call.attribute(name, "") else []
    operand, count = call.operand(), call.shape.parts[0].sizes[-1]
    if not called:
        return ops.TopK(operand, count, largest=True)
    (comparator,) = called
    largest = _direction(comparator)
    if largest is not None:
        return ops.TopK(operand, count, largest)
    last = operand.shape.rank() - 1
    places = call.builder.Iota(Shape.array_shape("s32", operand.shape.sizes), last)
    ordered = ops.Sort([operand, places], _of_pairs(comparator, operand.shape), last, True)
    return call.builder.Tuple([ops.SliceInDim(ordered[part], 0, count, 1, last) for part in range(2)])


def _direction(comparator: XlaComputation) -> bool | None:
    """Return whether a comparator has the largest first, in total order; None where it is no such order, or its
    opposite."""
    op, (first, second, *_) = comparator.result.defining_op, comparator.block.arguments
    element = first.tensor.element_type
    if op is None or op.name != "stablehlo.compare" or not isinstance(element, ElementType):
        return None
    if element.is_float and op["compare_type"] != "TOTALORDER":
        return None
    direction, pair = op["comparison_direction"], tuple(op.operands)
    if direction not in ("GT", "LT") or pair not in ((first, second), (second, first)):
        return None
    return bool((direction == "GT") == (pair == (first, second)))


def _of_pairs(comparator: XlaComputation, shape: Shape) -> XlaComputation:
    """Return a comparator of elements as one of elements and their places."""
    if len(comparator.parameter_types) == 4:
        return comparator
    inner = XlaBuilder("compare_pairs")
    kinds = [Shape.array_shape(shape.xla_element_type(), ())] * 2 + [Shape.array_shape("s32", ())] * 2
    parameters = [inner.Parameter(number, kind, f"p{number}") for number, kind in enumerate(kinds)]
    ops.Call(comparator, parameters[:2], builder=inner)  # type: ignore[call-arg]
    return inner.Build()


def _call_of(call: Call) -> Op:
    """Return the custom call that was made last."""
    return next(op for op in reversed(call.builder.block.ops) if op.name == "stablehlo.custom_call")


def _keep_computations(call: Call, computations: list[XlaComputation]) -> None:
    """Have the call made last name the computations that the text says it calls."""
    op = _call_of(call)
    op.attributes = {**op.attributes, "called_computations": tuple(each.symbol for each in computations)}
    call.builder.called.update((each.symbol, each) for each in computations)


def _keep_attributes(call: Call) -> None:
    """Keep what the text says of a call whose target users may register: their function gets it as strings."""
    others = {name for name in call.instruction.attributes if name not in call.read and name not in IGNORED}
    op = _call_of(call)
    op.discardable = {**op.discardable, **{name: StringAttr(call.string(name).encode()) for name in sorted(others)}}


@instruction("opt-barrier")
def _barrier(call: Call) -> XlaOp:
    return ops.OptimizationBarrier(call.operand())


@instruction("add-dependency")
def _add_dependency(call: Call) -> XlaOp:
    """Return the first operand, after the token that is the second."""
    return call.operands(2)[0]


@instruction("after-all")
def _after_all(call: Call) -> XlaOp:
    """Return a token after the operands that are tokens; others impose no order."""
    return call.builder.AfterAll([operand for operand in call.operands() if operand.shape.is_token()])


# --- streams and channels --------------------------------------------------------------------------------------------


def _transfer_pairs(call: Call) -> list[tuple[int, int]] | None:
    """Return the pairs of source and target in the frontend's attributes; None where there are none."""
    pairs_text = call.frontend(TRANSFER_PAIRS, "")
    return read_pairs(pairs_text) if pairs_text else None


@instruction("infeed")
def _infeed(call: Call) -> XlaOp:
    return ops.InfeedWithToken(call.operand(), call.shape.parts[0], call.string("infeed_config"))


@instruction("outfeed")
def _outfeed(call: Call) -> XlaOp:
    operand, token = call.operands(2)
    call.attribute("outfeed_shape", "")
    return ops.OutfeedWithToken(operand, token, None, call.string("outfeed_config"))


def _handle(call: Call) -> ChannelHandle:
    host = call.flag("is_host_transfer")
    sends = call.instruction.opcode == "send"
    kind = (
        (ChannelType.DEVICE_TO_HOST if sends else ChannelType.HOST_TO_DEVICE) if host else ChannelType.DEVICE_TO_DEVICE
    )
    return ChannelHandle(call.integer("channel_id", 0), kind)


@instruction("send")
def _send(call: Call) -> XlaOp:
    operand, token = call.operands(2)
    pairs = _transfer_pairs(call)
    after = ops.SendWithToken(operand, token, _handle(call), pairs)
    return call.builder.Tuple([operand, _request(call), after])


@instruction("recv")
def _recv(call: Call) -> XlaOp:
    pairs = _transfer_pairs(call)
    received = ops.RecvWithToken(call.operand(), call.shape.parts[0], _handle(call), pairs)
    return call.builder.Tuple([received[0], _request(call), received[1]])


def _request(call: Call) -> XlaOp:
    """Return the request identifier of a context, which nothing reads."""
    kinds = [part.primitive_type for part in call.shape.parts[1:2] if part.is_array()]
    return call.builder.ConstantR0(0, kinds[0] if kinds else U32)


@instruction("send-done")
def _send_done(call: Call) -> XlaOp:
    _done(call)
    return ops.GetTupleElement(call.operand(), 2)


@instruction("recv-done")
def _recv_done(call: Call) -> XlaOp:
    _done(call)
    context = call.operand()
    return call.builder.Tuple([context[0], context[2]])


def _done(call: Call) -> None:
    for name in ("channel_id", "is_host_transfer"):
        call.attribute(name, "")
