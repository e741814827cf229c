"""Lowers reductions: partial results, scans with block totals, windows with halos."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from partitioner import window as win
from partitioner.lowering.assign import Assignment, reduced, sharding_of
from partitioner.lowering.by_rule import emit_plain
from partitioner.lowering.core import Lowering, lowers
from partitioner.mesh import Axes
from partitioner.prices import prices
from partitioner.rules.core import PASS, PERMUTE, Rule, local_rule
from partitioner.sharding import Sharding
from partitioner.window import HaloWindow, contiguous_window
from spmd.analysis.constants import constant_elements
from spmd.analysis.reducers import identity, monoid_of
from spmd.analysis.windows import Windows, windows_of
from spmd.dialects.shapes import dilated
from spmd.ir import Op, Region, Value
from spmd.support.arrays import Array
from spmd.types import ElementType


def is_constant(value: Value, constant: object) -> bool:
    """Return whether `value` is known to equal the 0-d array `constant` everywhere; zeros compare equal."""
    elements = constant_elements(value)
    return elements is not None and bool((elements == constant).all())


def _adds_up_to_zero(init: Value) -> bool:
    """Return whether a sum from the constant `init` cannot be -0.0, unlike a sum from the identity."""
    elements = constant_elements(init)
    return elements is not None and elements.dtype.kind not in "biu" and not np.signbit(elements.real).any()


def folding(region: Region, operand: Value) -> tuple[str | None, Array | None]:
    """Return the op by which `region` reduces elements of `operand`, and its identity; None if unknown."""
    monoid, element = monoid_of(region), operand.tensor.element_type
    if monoid is None or not isinstance(element, ElementType):
        return None, None
    return monoid.op, identity(monoid.kind, element)


@lowers("stablehlo.reduce")
def reduce(lowering: Lowering, op: Op) -> None:
    """Lower a reduce: along sharded dimensions, a known op gives partial results that are reduced later."""
    count = len(op.operands) // 2
    name, zero = folding(op.region("body"), op.operands[0]) if count == 1 else (None, None)
    rule = local_rule(op)
    if name is None or zero is None:
        _reduce_candidates(lowering, op, rule, count)
        return
    pending = _pending(lowering, op.operands[0], name)
    plain = is_constant(op.operands[1], zero)
    assignment = lowering.choose(op, rule)
    assignment = tuple(tuple(axis for axis in axes if axis not in pending) for axes in assignment)
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    local = lowering.get(op.operands[0], replace(layout, partial=pending, reduction=name))
    emitter = lowering.emitter
    axes = tuple(sorted((*reduced(rule, assignment), *pending)))
    unit = emitter.constant(zero, op.operands[0].tensor.with_shape(())) if axes and not plain else None
    init = unit or lowering.replicated(op.operands[1])
    for dimension in op["dimensions"]:
        size = op.operands[0].tensor.static_shape[dimension]
        if layout.is_padded(dimension, size):
            fill = emitter.constant(zero, op.operands[0].tensor.with_shape(()))
            local = win.mask_padding(emitter, local, dimension, layout.dimensions[dimension], size, fill)
    result = replace(sharding_of(lowering.mesh, rule.results[0], assignment), partial=axes, reduction=name)
    folded = lowering.clone(op, [local, init], [result])[0]
    if unit is not None:
        folded = emitter.all_reduce(folded, axes, name)
        start = emitter.broadcast(lowering.replicated(op.operands[1]), folded.tensor.shape)
        folded = emitter.op(name, [folded, start], [folded.type]).results[0]
        result = result.without_partial()
    lowering.set(op.result, folded, result)


def _pending(lowering: Lowering, value: Value, name: str) -> Axes:
    """Return the sub-axes over which an operand may stay partial, being reduced by the same op."""
    layouts = lowering.layouts_of(value)
    if len(layouts) == 1 and layouts[0].partial and layouts[0].reduction == name and lowering.uses.get(value) == 1:
        return layouts[0].partial
    return ()


def _reduce_candidates(lowering: Lowering, op: Op, rule: Rule, count: int) -> None:
    """Lower a reduce by any computation: reduce blocks, gather the results of all processes, and reduce those."""
    loose = replace(rule, kinds=(PASS,) * len(rule.kinds))

    def extra(assignment: Assignment) -> float:
        blocks = lowering.mesh.count(reduced(rule, assignment))
        if blocks == 1:
            return 0.0
        layouts = [sharding_of(lowering.mesh, mapping, assignment) for mapping in rule.results]
        sizes = [layout.local_type(v.tensor).nbytes for v, layout in zip(op.results, layouts, strict=True)]
        return sum(size * (blocks - 1) + prices().latency for size in sizes)

    assignment = lowering.choose(op, loose, None, extra)
    axes = reduced(rule, assignment)
    emitter = lowering.emitter
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    inits = [lowering.replicated(value) for value in op.operands[count:]]
    locals_ = []
    for value, init in zip(op.operands[:count], inits, strict=True):
        local = lowering.get(value, layout)
        for dimension in op["dimensions"]:
            size = value.tensor.static_shape[dimension]
            local = win.mask_padding(emitter, local, dimension, layout.dimensions[dimension], size, init)
        locals_.append(local)
    results = [sharding_of(lowering.mesh, mapping, assignment) for mapping in rule.results]
    partial_results = lowering.clone(op, [*locals_, *inits], results)
    if axes:
        gathered = []
        for value in partial_results:
            one = emitter.reshape(value, (1, *value.tensor.static_shape))
            gathered.append(emitter.all_gather(one, 0, axes))
        types = [value.tensor for value in partial_results]
        partial_results = lowering.clone(op, [*gathered, *inits], results, {"dimensions": (0,)}, types)
    lowering.set_all(op.results, partial_results, results)


@lowers("stablehlo.reduce_window")
def reduce_window(lowering: Lowering, op: Op) -> None:
    """Lower a reduce_window; windows along sharded dimensions need halos."""
    rule = local_rule(op)
    windows = windows_of(op)
    scan = windows.cumulative_axis()
    count = len(op.operands) // 2
    name, zero = folding(op.region("body"), op.operands[0]) if count == 1 else (None, None)
    moved = [dimension for dimension in range(windows.rank) if not windows.passes(dimension)]
    can_scan = scan is not None and zero is not None

    def extra(assignment: Assignment) -> float:
        layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
        spent = 0.0
        for dimension in moved:
            blocks = layout.count(dimension)
            if blocks > 1:
                rows = win.row_bytes(op.operands[0], layout, dimension) * count
                if can_scan:
                    spent += rows * (blocks - 1) + prices().latency
                else:
                    window = _window(windows, dimension, blocks)
                    spent += float("inf") if window is None else win.price(window[0], rows)
        return spent

    assignment = lowering.choose(op, rule, lambda factor: rule.kinds[factor] in (PASS, PERMUTE), extra)
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    cut = [dimension for dimension in moved if layout.dimensions[dimension]]
    if not cut:
        emit_plain(lowering, op, rule, assignment)
    elif can_scan:
        assert scan is not None and name is not None and zero is not None
        _scan(lowering, op, layout, scan, name, zero)
    else:
        _windows(lowering, op, windows, rule, assignment, cut)


def _scan(lowering: Lowering, op: Op, layout: Sharding, scan: tuple[int, bool], name: str, zero: Array) -> None:
    """Lower a cumulative reduction: each process scans its block and combines it with the totals of those before."""
    dimension, backward = scan
    emitter = lowering.emitter
    axes = layout.dimensions[dimension]
    local = lowering.get(op.operands[0], layout)
    scalar = op.operands[0].tensor.with_shape(())
    unit = emitter.constant(zero, scalar)
    size = op.operands[0].tensor.static_shape[dimension]
    local = win.mask_padding(emitter, local, dimension, axes, size, unit)
    scanned = scan_block(lowering, op, local, unit, dimension, backward)
    block = local.tensor.static_shape[dimension]
    edge = 0 if backward else block - 1
    totals = emitter.all_gather(emitter.slice(scanned, dimension, edge, edge + 1), dimension, axes)
    place = emitter.iota(totals.tensor.static_shape, dimension)
    mine = emitter.broadcast(emitter.coordinate(axes), totals.tensor.shape)
    before = emitter.compare(place, mine, "GT" if backward else "LT")
    others = emitter.select(before, totals, emitter.broadcast(unit, totals.tensor.shape))
    carry = emitter.reduce(name, others, unit, (dimension,))
    kept = tuple(d for d in range(scanned.tensor.rank) if d != dimension)
    spread = emitter.one("broadcast_in_dim", [carry], scanned.type, broadcast_dimensions=kept)
    scanned = emitter.op(name, [spread, scanned] if not backward else [scanned, spread], [scanned.type]).results[0]
    init = op.operands[1]
    if not is_constant(init, zero) or (name == "stablehlo.add" and _adds_up_to_zero(init)):
        start = emitter.broadcast(lowering.replicated(init), scanned.tensor.shape)
        scanned = emitter.op(name, [scanned, start], [scanned.type]).results[0]
    lowering.set(op.result, scanned, layout)


def scan_block(lowering: Lowering, op: Op, local: Value, unit: Value, dimension: int, backward: bool) -> Value:
    """Return the cumulative reduction of one block."""
    rank = local.tensor.rank
    block = local.tensor.static_shape[dimension]
    extents = tuple(block if d == dimension else 1 for d in range(rank))
    padding = np.zeros((rank, 2), np.int64)
    padding[dimension] = (0, block - 1) if backward else (block - 1, 0)
    attributes = {"window_dimensions": extents, "padding": padding}
    return lowering.clone(op, [local, unit], [None], attributes, [local.tensor])[0]


def _window(windows: Windows, dimension: int, blocks: int) -> tuple[HaloWindow, int, int] | None:
    """Return the window along a dimension, the offset of its first element in the dilated block, and the extent.

    None if the offset differs between processes.
    """
    return spatial_window(
        windows.shape[dimension],
        windows.counts[dimension],
        blocks,
        windows.reaches[dimension],
        windows.strides[dimension],
        windows.base_dilations[dimension],
        windows.padding[dimension][0],
    )


def spatial_window(
    size: int, out: int, blocks: int, reach: int, stride: int, dilation: int, low: int
) -> tuple[HaloWindow, int, int] | None:
    """Return the input elements that block i of a windowed op's result needs, for a dilated and padded input.

    Returns the window, the offset of its first element in the dilated extent, and that extent; None if the offset
    differs between blocks.
    """
    block = -(-out // blocks)
    extent = (block - 1) * stride + reach
    first = [index * block * stride - low for index in range(blocks)]
    starts = [-(-start // dilation) for start in first]
    places = {element * dilation - start for element, start in zip(starts, first, strict=True)}
    if len(places) != 1:
        return None
    (place,) = places
    width = max(1, -(-(extent - place) // dilation))
    return contiguous_window(size, blocks, starts, width), place, extent


def _windows(lowering: Lowering, op: Op, windows: Windows, rule: Rule, assignment: Assignment, cut: list[int]) -> None:
    """Lower windows along sharded dimensions: every process fetches the elements of its windows, padding included."""
    layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
    emitter = lowering.emitter
    count = len(op.results)
    inits = [lowering.replicated(value) for value in op.operands[count:]]
    padding = np.array(windows.padding, np.int64).reshape(windows.rank, 2)
    locals_ = []
    for value, init in zip(op.operands[:count], inits, strict=True):
        local = lowering.get(value, layout)
        for dimension in cut:
            window_and_place = _window(windows, dimension, layout.count(dimension))
            assert window_and_place is not None
            window, place, extent = window_and_place
            local = win.halo_exchange(emitter, local, dimension, layout.dimensions[dimension], window, init)
            padding[dimension] = place, extent - place - dilated(window.width, windows.base_dilations[dimension])
        locals_.append(local)
    results = [sharding_of(lowering.mesh, mapping, assignment) for mapping in rule.results]
    lowering.set_all(op.results, lowering.clone(op, [*locals_, *inits], results, {"padding": padding}), results)


@lowers("stablehlo.select_and_scatter")
def select_and_scatter(lowering: Lowering, op: Op) -> None:
    """Lower select_and_scatter: windows within one block are local; other sharded dimensions are replicated."""
    rule = local_rule(op)
    windows = windows_of(op)
    sizes, kinds = list(rule.sizes), list(rule.kinds)
    mappings = [list(mapping) for mapping in rule.tensors]
    for dimension, count in enumerate(windows.counts):
        aligned = (
            windows.sizes[dimension] <= windows.strides[dimension]
            and count * windows.strides[dimension] == windows.shape[dimension]
            and not any(windows.padding[dimension])
        )
        if aligned and kinds[mappings[0][dimension][0]] == PERMUTE:
            factor = len(sizes)
            sizes.append(count)
            kinds.append(PASS)
            for mapping in (mappings[0], mappings[1], mappings[3]):
                mapping[dimension] = (factor,)
    rule_of_op = Rule(tuple(sizes), tuple(map(tuple, mappings[:3])), tuple(map(tuple, mappings[3:])), tuple(kinds))

    def allowed(factor: int) -> bool:
        return kinds[factor] == PASS

    assignment = lowering.choose(op, rule_of_op, allowed)
    trimmed = tuple(
        axes if rule_of_op.sizes[factor] % lowering.mesh.count(axes) == 0 else ()
        for factor, axes in enumerate(assignment)
    )
    emit_plain(lowering, op, rule_of_op, trimmed)
