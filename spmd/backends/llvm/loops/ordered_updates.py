"""Updates whose indices may repeat: computed vectorized, applied lane by lane in order.

Indices, and all values that do not depend on memory, are vectors stored to the stack; a loop over lanes then loads,
combines and stores. Out-of-bounds points update a dummy location.
"""

from __future__ import annotations

from spmd.analysis.scalar.build import bits_of, compare, float_of, select
from spmd.analysis.scalar.expression import I1, I64, Expression, MachineType, Primitive, expression, parameter, walk
from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.element_emitter import Bound, ElementEmitter
from spmd.backends.llvm.loops.point_context import Rendered
from spmd.compiler.schedule.nest import FOLDED, Update

#: Byte offset by which addresses of unrolled lanes are biased, and which their accesses add. Processors predict
#: store-to-load forwarding by address register and displacement: lanes that look alike but differ in address cause
#: pipeline flushes, and histograms take three times as long.
_BIAS = 8
#: Most nodes of a combiner whose lanes are unrolled.
_SHORT = 8


def write_in_order(point: ElementEmitter, update: Update) -> None:
    """Emit `update` for the lanes in order."""
    text, width = point.text, point.width
    codes, inputs = _split([code for _, _, code in update.writes], len(update.old))
    is_short = len(walk(codes)) <= _SHORT
    places = [_places(point, update, number, _BIAS if is_short else 0) for number in range(len(update.writes))]
    slots = [_spill(point, node) for node in inputs]
    codes = without_extrema(codes)
    count = width if point.valid is None else point.valid

    def one(lane: str) -> None:
        _write_lane(point, codes, inputs, places, slots, lane)

    if is_short:
        for number in range(count):
            one(str(number))
        return
    lane, _ = text.open_loop()
    one(lane)
    text.close_loop(count)


def _write_lane(
    point: ElementEmitter,
    codes: list[Expression],
    inputs: list[Expression],
    places: list[str],
    slots: list[str],
    lane: str,
) -> None:
    """Emit the load, combine and store of one lane."""
    text = point.text
    types = [llvm_type(code.type, 1) for code in codes]

    def taken(slot: str, type: str) -> str:
        at = text.value(f"getelementptr {type}, ptr {slot}, i64 {lane}")
        return text.value(f"load {type}, ptr {at}")

    addresses = [taken(slot, "ptr") for slot in places]
    if lane.isdecimal():
        addresses = [text.value(f"getelementptr i8, ptr {at}, i64 {_BIAS * int(lane)}") for at in addresses]
    old = [text.value(f"load {type}, ptr {address}") for type, address in zip(types, addresses, strict=True)]
    new = [taken(slot, _in_memory(node.type)) for slot, node in zip(slots, inputs, strict=True)]
    for number, node in enumerate(inputs):
        if node.type is I1:
            new[number] = text.value(f"trunc i8 {new[number]} to i1")
    bound = Bound(point, {FOLDED + n: Rendered(name, False, text.depth) for n, name in enumerate([*old, *new])}, 1)
    rendered = [bound.render(code) for code in codes]
    for type, address, name in zip(types, addresses, rendered, strict=True):
        text.line(f"store {type} {name}, ptr {address}")


def _in_memory(type: MachineType) -> str:
    return "i8" if type is I1 else llvm_type(type, 1)


def _spill(point: ElementEmitter, node: Expression) -> str:
    """Return a stack slot with the value of `node` for each lane."""
    text, width = point.text, point.width
    name, vector = point.at_width(point.render(node), node.type, width, node), llvm_type(node.type, width)
    if node.type is I1:
        name, vector = text.value(f"zext {vector} {name} to <{width} x i8>"), f"<{width} x i8>"
    slot = text.allocate(vector)
    text.line(f"store {vector} {name}, ptr {slot}")
    return slot


def _places(point: ElementEmitter, update: Update, number: int, bias: int) -> str:
    """Return a stack slot with the address of each lane, biased by -`bias` bytes per lane."""
    text, width = point.text, point.width
    value, address, code = update.writes[number]
    type, pointer = llvm_type(code.type, 1), point.pointer(value)
    offsets = point.at_width(point.affine(address), I64, width)
    vector = f"<{width} x ptr>"
    pointers = text.value(f"getelementptr {type}, ptr {pointer}, <{width} x i64> {offsets}")
    if update.mask is not None:
        inside = point.at_width(point.render(update.mask), I1, width)
        one = text.value(f"insertelement {vector} poison, ptr {text.allocate(type, 8)}, i64 0")
        nowhere = text.value(f"shufflevector {vector} {one}, {vector} poison, <{width} x i32> zeroinitializer")
        pointers = text.value(f"select <{width} x i1> {inside}, {vector} {pointers}, {vector} {nowhere}")
    if bias:
        moves = ", ".join(f"i64 {-bias * lane}" for lane in range(width))
        pointers = text.value(f"getelementptr i8, {vector} {pointers}, <{width} x i64> <{moves}>")
    slot = text.allocate(vector)
    text.line(f"store {vector} {pointers}, ptr {slot}")
    return slot


def without_extrema(codes: list[Expression]) -> list[Expression]:
    """Return `codes` with extrema of floats in terms of comparisons.

    Of one lane LLVM compiles them, without AVX-512, to branches on signs, which are not predicted. The extremum of
    either order of the operands differs from the other's for zeros of both signs, of which one has the wanted bits.
    """
    replaced: dict[Expression, Expression] = {}
    for node in walk(codes):
        operands = [replaced[operand] for operand in node.operands]
        if node.primitive in (Primitive.MAXIMUM, Primitive.MINIMUM):
            above = node.primitive is Primitive.MAXIMUM
            x, y = operands
            one, other = (select(compare("ogt" if above else "olt", a, b), a, b) for a, b in ((x, y), (y, x)))
            both = bits_of(one) & bits_of(other) if above else bits_of(one) | bits_of(other)
            replaced[node] = select(compare("uno", x, y), x + y, float_of(both))
        else:
            replaced[node] = expression(node.primitive, node.type, operands, node.attribute) if operands else node
    return [replaced[code] for code in codes]


def _split(codes: list[Expression], old: int) -> tuple[list[Expression], list[Expression]]:
    """Return `codes` with subexpressions that do not depend on the `old` parameters replaced by further parameters, and
    these.
    """
    depends: dict[Expression, bool] = {}
    for node in walk(codes):
        own = node.primitive is Primitive.PARAMETER and isinstance(node.attribute, int) and node.attribute >= FOLDED
        depends[node] = own or any(depends[operand] for operand in node.operands)
    inputs: dict[Expression, Expression] = {}
    replaced: dict[Expression, Expression] = {}

    def taken(node: Expression) -> Expression:
        if node.primitive is Primitive.CONSTANT:
            return node
        if not depends[node]:
            return inputs.setdefault(node, parameter(FOLDED + old + len(inputs), node.type))
        return replaced[node]

    for node in walk(codes):
        if depends[node]:
            operands = [taken(operand) for operand in node.operands]
            own = node.primitive is Primitive.PARAMETER
            replaced[node] = node if own else expression(node.primitive, node.type, operands, node.attribute)
    return [taken(code) for code in codes], list(inputs)
