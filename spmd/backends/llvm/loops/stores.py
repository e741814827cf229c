"""Stores of a loop nest, as LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spmd.analysis.scalar.expression import I64, MachineType
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import llvm_type, suffix
from spmd.backends.llvm.loops.element_emitter import Bound, ElementEmitter, all_lanes
from spmd.backends.llvm.loops.point_context import Rendered
from spmd.backends.llvm.loops.strides import first_lanes, store_pairs
from spmd.compiler.schedule.nest import FOLDED, Load, Store, Update


def store_all(point: ElementEmitter, stores: Sequence[Store], bindings: Mapping[int, Rendered]) -> None:
    """Emit stores; `bindings` are the values of reduction results by parameter number.

    All loads precede all stores, since results may overwrite operands.
    """
    values = []
    for store in stores:
        for part, _ in store.address.dynamic:
            point.render(part)
        if bindings:
            vector = any(value.is_vector for value in bindings.values())
            name = Bound(point, bindings, point.width if vector else 1).render(store.code)
            values.append(Rendered(name, vector, point.text.depth))
        else:
            values.append(point.render(store.code))
    number = 0
    while number < len(stores):
        if number + 1 < len(stores) and _is_pair(point, *stores[number : number + 2]):
            parts = [
                point.at_width(value, store.code.type, point.width, store.code)
                for store, value in zip(stores[number : number + 2], values[number:], strict=False)
            ]
            store = stores[number]
            start = point.start_of(store.address).name
            store_pairs(point, point.pointer(store.value), start, parts, store.code.type)
            number += 2
        else:
            _store(point, stores[number], values[number])
            number += 1


def store_lanes(text: FunctionText, type: MachineType, width: int, count: int, name: str, address: str) -> None:
    """Emit a store of the first `count` lanes of the vector `name` at `address`, contiguously.

    A single lane is stored as a scalar: LLVM's masked store of one lane of a narrowed vector may write a wider one.
    """
    scalar, vector, align = llvm_type(type, 1), llvm_type(type, width), type.bits // 8
    if count == width:
        text.line(f"store {vector} {name}, ptr {address}, align {align}")
    elif count == 1:
        lane = text.value(f"extractelement {vector} {name}, i64 0")
        text.line(f"store {scalar} {lane}, ptr {address}, align {align}")
    else:
        text.line(
            f"call void @llvm.masked.store.{suffix(type, width)}.p0({vector} {name}, ptr align {align} {address}, "
            f"<{width} x i1> {first_lanes(width, count)})"
        )


def _is_pair(point: ElementEmitter, first: Store, second: Store) -> bool:
    """Return whether two stores interleave: together they are contiguous."""
    if point.lane is None or first.value is not second.value or first.code.type is not second.code.type:
        return False
    if second.address != first.address.shifted(1) or point.lanes.step(first.address) != 2:
        return False
    return not any(point.render(part).is_vector for part, _ in first.address.dynamic)


def write_update(point: ElementEmitter, update: Update) -> None:
    """Emit a read-modify-write."""
    mask = None if update.mask is None else point.render(update.mask)
    is_whole = point.lane is not None and point.nest.extents[point.lane] <= point.width
    if mask is not None and not mask.is_vector and is_whole:
        with point.text.where(mask.name):  # a whole row, or none: the branch is predictable
            _write_where(point, replace(update, mask=None), None)
    else:
        _write_where(point, update, mask)


def _write_where(point: ElementEmitter, update: Update, mask: Rendered | None) -> None:
    loads = [
        Load(value, address, code.type, update.mask)
        for (value, address, _), code in zip(update.writes, update.old, strict=True)
    ]
    before = [point.load(load, point.text.depth) for load in loads]
    vector = any(value.is_vector for value in before)
    bindings = {
        FOLDED + number: Rendered(point.at_width(value, load.type, point.width if vector else 1), vector, 0)
        for number, (value, load) in enumerate(zip(before, loads, strict=True))
    }
    bound = Bound(point, bindings, point.width if vector else 1)
    codes = [bound.render(code) for _, _, code in update.writes]
    for (value, address, code), name in zip(update.writes, codes, strict=True):
        _store(point, Store(value, address, code), Rendered(name, vector, point.text.depth), mask)


def _store(point: ElementEmitter, store: Store, value: Rendered, mask: Rendered | None = None) -> None:
    type = llvm_type(store.code.type, 1)
    pointer = point.pointer(store.value)
    step = point.lanes.step(store.address)
    varies = any(point.render(part).is_vector for part, _ in store.address.dynamic)
    if step == 0 and not varies:
        first = point.start_of(store.address)
        place = pointer
        if first.name != "0":
            place = point.text.value(f"getelementptr {type}, ptr {pointer}, i64 {first.name}")
        if mask is not None:  # masked points store to a dummy location
            nowhere = point.text.allocate(type, 8)
            place = point.text.value(f"select i1 {mask.name}, ptr {place}, ptr {nowhere}")
        point.text.line(f"store {type} {value.name}, ptr {place}")
        return
    align = store.code.type.bits // 8
    vector = llvm_type(store.code.type, point.width)
    name = point.at_width(value, store.code.type, point.width, store.code)
    if step == 1 and not varies:
        start = point.start_of(store.address)
        number = point.touched(start.name, mask, point.text.depth)
        place = point.text.value(f"getelementptr {type}, ptr {pointer}, i64 {number}")
        if mask is None:
            lanes = point.width if point.valid is None else point.valid
            store_lanes(point.text, store.code.type, point.width, lanes, name, place)
            return
        function = f"llvm.masked.store.{suffix(store.code.type, point.width)}.p0"
        point.text.line(
            f"call void @{function}({vector} {name}, ptr align {align} {place}, "
            f"<{point.width} x i1> {point.allowed(mask)})"
        )
        return
    places = point.at_width(point.affine(store.address), I64, point.width)
    pointers = point.text.value(f"getelementptr {type}, ptr {pointer}, <{point.width} x i64> {places}")
    allowed = all_lanes(point.width) if point.valid is None and mask is None else point.allowed(mask)
    function = f"llvm.masked.scatter.{suffix(store.code.type, point.width)}.{suffix('p0', point.width)}"
    point.text.line(
        f"call void @{function}({vector} {name}, <{point.width} x ptr> align {align} {pointers}, "
        f"<{point.width} x i1> {allowed})"
    )
