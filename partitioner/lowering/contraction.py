"""Lowers contractions: sharded contracting dimensions give partial sums, spatial ones exchange halos."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from partitioner import window as win
from partitioner.lowering.assign import Assignment, reduced, sharding_of
from partitioner.lowering.core import Lowering, lowers
from partitioner.lowering.reduction import spatial_window
from partitioner.prices import prices
from partitioner.rules.core import PERMUTE, REDUCE, REPLICATE, Rule, RuleBuilder, local_rule
from partitioner.sharding import Sharding
from partitioner.window import HaloWindow, contiguous_window
from spmd.ir import AttributeValue, Op, Value
from spmd.types import QuantizedType


def _work(lowering: Lowering, rule: Rule, assignment: Assignment) -> float:
    """Return the operations of one process in units of bytes that could be sent meanwhile."""
    total = 2 * prod(rule.sizes)
    for axes in assignment:
        total //= lowering.mesh.count(axes)
    return total / prices().operations


@lowers("stablehlo.dot_general", "stablehlo.dot", "stablehlo.einsum", "stablehlo.unary_einsum")
def dot(lowering: Lowering, op: Op) -> None:
    """Lower a dot; sharded contracting dimensions give a partial sum."""
    rule = local_rule(op)
    if any(isinstance(value.tensor.element_type, QuantizedType) for value in op.operands):
        rule = replace(rule, kinds=tuple(REPLICATE if kind == REDUCE else kind for kind in rule.kinds))
    assignment = lowering.choose(op, rule, None, lambda candidate: _work(lowering, rule, candidate))
    operands = [_contracted(lowering, value, rule, index, assignment) for index, value in enumerate(op.operands)]
    layout = replace(sharding_of(lowering.mesh, rule.results[0], assignment), partial=reduced(rule, assignment))
    lowering.set(op.result, lowering.clone(op, operands, [layout])[0], layout)


def _contracted(lowering: Lowering, value: Value, rule: Rule, index: int, assignment: Assignment) -> Value:
    """Return an operand in its assigned layout, with zeros in the padding of contracting dimensions."""
    layout = sharding_of(lowering.mesh, rule.operands[index], assignment)
    local = lowering.get(value, layout)
    for dimension, factors in enumerate(rule.operands[index]):
        if rule.kinds[factors[0]] == REDUCE:
            local = without_padding(lowering, local, value, layout, dimension)
    return local


def without_padding(lowering: Lowering, local: Value, value: Value, layout: Sharding, dimension: int) -> Value:
    """Return `local` with zeros in the padding of `dimension`."""
    size = value.tensor.static_shape[dimension]
    if not layout.is_padded(dimension, size):
        return local
    zero = lowering.emitter.splat(0, value.tensor.with_shape(()))
    return win.mask_padding(lowering.emitter, local, dimension, layout.dimensions[dimension], size, zero)


@dataclass(frozen=True)
class _Space:
    """One spatial dimension of a convolution; if `summed`, the window is sharded instead of the output."""

    source: int
    kernel: int
    place: int
    size: int
    reach: int
    out: int
    stride: int
    base: int
    step: int
    low: int
    high: int
    reversed: bool
    summed: bool
    factor: int

    def window(self, blocks: int) -> tuple[HaloWindow, int, int] | None:
        """Return the halo window of a block, the offset of its first element and the extent; None if impossible."""
        if not self.summed:
            return spatial_window(self.size, self.out, blocks, self.reach, self.stride, self.base, self.low)
        if self.base != 1 or self.reversed:
            return None
        extent = (self.reach - 1) // self.step + 1
        block = -(-extent // blocks)
        width = (self.out - 1) * self.stride + (block - 1) * self.step + 1
        starts = tuple(index * block * self.step - self.low for index in range(blocks))
        return contiguous_window(self.size, blocks, starts, width), 0, width


@lowers("stablehlo.convolution")
def convolution(lowering: Lowering, op: Op) -> None:
    """Lower a convolution; sharded output dimensions need halos of the input, a sharded window gives partial sums."""
    rule, spaces = _rule(lowering, op)
    groups = _group_factors(op, rule)

    def allowed(factor: int) -> bool:
        return rule.kinds[factor] != REPLICATE

    def extra(assignment: Assignment) -> float:
        if any(rule.sizes[group] % lowering.mesh.count(assignment[group]) for group in groups.values()):
            return float("inf")  # every process must have the same number of complete groups
        layout = sharding_of(lowering.mesh, rule.operands[0], assignment)
        spent = _work(lowering, rule, assignment)
        for space in spaces:
            blocks = layout.count(space.source)
            if blocks > 1:
                pieces = space.window(blocks)
                spent += (
                    float("inf")
                    if pieces is None
                    else win.price(pieces[0], win.row_bytes(op.operands[0], layout, space.source))
                )
        return spent

    assignment = lowering.choose(op, rule, allowed, extra)
    layouts = [sharding_of(lowering.mesh, mapping, assignment) for mapping in rule.operands]
    local, kernel = (lowering.get(value, layout) for value, layout in zip(op.operands, layouts, strict=True))
    numbers = op["dimension_numbers"]
    for side, dimension in ((0, numbers.input_feature_dimension), (1, numbers.kernel_input_feature_dimension)):
        if rule.kinds[rule.operands[side][dimension][-1]] == REDUCE:
            if side == 0:
                local = without_padding(lowering, local, op.operands[0], layouts[0], dimension)
            else:
                kernel = without_padding(lowering, kernel, op.operands[1], layouts[1], dimension)
    attributes: dict[str, AttributeValue] = {
        name: rule.sizes[group] // lowering.mesh.count(assignment[group]) for name, group in groups.items()
    }
    padding = np.array([(space.low, space.high) for space in spaces], np.int64).reshape(len(spaces), 2)
    for index, space in enumerate(spaces):
        blocks = layouts[0].count(space.source)
        if blocks == 1:
            continue
        pieces = space.window(blocks)
        assert pieces is not None
        window, place, extent = pieces
        axes = layouts[0].dimensions[space.source]
        zero = lowering.emitter.splat(0, op.operands[0].tensor.with_shape(()))
        local = win.halo_exchange(lowering.emitter, local, space.source, axes, window, zero)
        padding[index] = place, extent - place - ((window.width - 1) * space.base + 1)
        if space.summed:
            kernel = without_padding(lowering, kernel, op.operands[1], layouts[1], space.kernel)
    attributes["padding"] = padding
    partial = reduced(rule, assignment)
    layout = replace(sharding_of(lowering.mesh, rule.results[0], assignment), partial=partial)
    lowering.set(op.result, lowering.clone(op, [local, kernel], [layout], attributes)[0], layout)


def _group_factors(op: Op, rule: Rule) -> dict[str, int]:
    """Return the factor of the groups by the name of their count attribute."""
    numbers = op["dimension_numbers"]
    dimensions = {
        "batch_group_count": numbers.input_batch_dimension,
        "feature_group_count": numbers.input_feature_dimension,
    }
    return {name: rule.operands[0][dimension][0] for name, dimension in dimensions.items() if op[name] > 1}


def _rule(lowering: Lowering, op: Op) -> tuple[Rule, list[_Space]]:
    """Return the rule for lowering a convolution, with spatial factors of the result or of the window."""
    builder = RuleBuilder(op)
    numbers = op["dimension_numbers"]
    lhs, rhs = builder.operand_shapes
    out = builder.result_shapes[0]
    groups = op["batch_group_count"], op["feature_group_count"]
    batch, feature = numbers.output_batch_dimension, numbers.output_feature_dimension
    kernel_feature, inner = numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension
    if groups[0] > 1:
        builder.factor([numbers.input_batch_dimension, kernel_feature], [feature], groups[0])
    if groups[0] == 1 or out[batch] > 1:
        builder.factor([numbers.input_batch_dimension, None], [batch], out[batch])
    if groups[1] > 1:
        builder.factor([numbers.input_feature_dimension, kernel_feature], [feature], groups[1])
    if groups[1] == 1 or rhs[inner] > 1:
        kind = REDUCE if op.result.tensor.is_quantized is False else REPLICATE
        builder.factor([numbers.input_feature_dimension, inner], [None], rhs[inner], kind)
    features = out[feature] // (groups[0] * groups[1])
    if groups == (1, 1) or features > 1:
        builder.factor([None, kernel_feature], [feature], features)
    spaces = []
    for index, (source, kernel, place) in enumerate(
        zip(
            numbers.input_spatial_dimensions,
            numbers.kernel_spatial_dimensions,
            numbers.output_spatial_dimensions,
            strict=True,
        )
    ):
        spaces.append(_space(lowering, op, builder, index, (source, kernel, place), lhs, rhs, out))
    return builder.build(), spaces


def _space(
    lowering: Lowering,
    op: Op,
    builder: RuleBuilder,
    index: int,
    places: tuple[int, int, int],
    lhs: tuple[int, ...],
    rhs: tuple[int, ...],
    out: tuple[int, ...],
) -> _Space:
    source, kernel, place = places

    def entry(name: str, default: int) -> int:
        values = op[name]
        return default if values is None else int(values[index])

    step, padding = entry("rhs_dilation", 1), op["padding"]
    low, high = (0, 0) if padding is None else (int(padding[index][0]), int(padding[index][1]))
    summed = any(layout.dimensions[kernel] for layout in lowering.layouts_of(op.operands[1]))
    factor = len(builder.sizes)
    if summed:
        builder.factor([source, kernel], [None], rhs[kernel], REDUCE)
    else:
        builder.factor([source, None], [place], out[place], PERMUTE)
    return _Space(
        source, kernel, place, lhs[source], (rhs[kernel] - 1) * step + 1, out[place], entry("window_strides", 1),
        entry("lhs_dilation", 1), step, low, high, bool(entry("window_reversal", 0)), summed, factor,
    )  # fmt: skip
