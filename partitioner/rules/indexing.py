"""Rules of ops that read or write at indices.

Source: Shardy's documentation, "Propagation"; StableHLO specification, gather and scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from partitioner.rules.core import PASS, REDUCE, REPLICATE, Rule, RuleBuilder, rule
from spmd.analysis.reducers import monoids_of
from spmd.ir import Op, Region

#: Adds a factor: (operand dimension, indices dimension, slices dimension, size, kind, blocked).
_Add = Callable[[int | None, int | None, int | None, int, str, bool], object]


@rule("stablehlo.dynamic_slice")
def dynamic_slice(op: Op) -> Rule:
    """Return a rule that passes dimensions of full extent and replicates sliced ones."""
    return RuleBuilder(op).matching(REPLICATE, blocked=True).build()


@rule("stablehlo.dynamic_update_slice")
def dynamic_update_slice(op: Op) -> Rule:
    """Return a rule that passes dimensions of full extent; otherwise the update's dimension is replicated.

    With constant indices Shardy shards the update, too; for computation it is replicated.
    """
    builder = RuleBuilder(op)
    makers = [value.defining_op for value in op.operands[2:]]
    is_constant = all(maker is not None and maker.name in ("stablehlo.constant", "sdy.constant") for maker in makers)
    for dimension, (size, updated) in enumerate(zip(builder.operand_shapes[0], builder.operand_shapes[1], strict=True)):
        if size == updated:
            builder.everywhere(dimension, size)
        else:
            builder.factor([dimension, None], [dimension], size)
            kind = PASS if is_constant else REPLICATE
            builder.factor([None, dimension], [None], updated, kind, local=REPLICATE)
    return builder.build()


@rule("stablehlo.gather")
def gather(op: Op) -> Rule:
    """Return a rule that passes batch dimensions and full windows; results are partial along indexed dimensions."""
    builder = RuleBuilder(op)
    numbers = op["dimension_numbers"]

    def add(operand: int | None, indices: int | None, slices: int | None, size: int, kind: str, blocked: bool) -> None:
        builder.factor([operand, indices], [slices], size, kind, blocked=blocked)

    _indexed_factors(
        builder.operand_shapes[0],
        builder.operand_shapes[1],
        builder.result_shapes[0],
        numbers.index_vector_dim,
        numbers.offset_dims,
        numbers.collapsed_slice_dims,
        numbers.operand_batching_dims,
        numbers.start_indices_batching_dims,
        None,
        add,
    )
    return builder.build()


@rule("stablehlo.scatter")
def scatter(op: Op) -> Rule:
    """Return the rule of a gather reversed: batch dimensions of updates are reduced if the computation is a monoid."""
    builder = RuleBuilder(op)
    numbers = op["scatter_dimension_numbers"]
    count = len(op.operand_group("inputs"))

    def add(operand: int | None, indices: int | None, slices: int | None, size: int, kind: str, blocked: bool) -> None:
        builder.factor([operand] * count + [indices] + [slices] * count, [operand] * count, size, kind, blocked=blocked)

    _indexed_factors(
        builder.operand_shapes[0],
        builder.operand_shapes[count],
        builder.operand_shapes[count + 1],
        numbers.index_vector_dim,
        numbers.update_window_dims,
        numbers.inserted_window_dims,
        numbers.input_batching_dims,
        numbers.scatter_indices_batching_dims,
        REDUCE if _folds_alike(op.region("update_computation")) else REPLICATE,
        add,
    )
    return builder.build()


def _folds_alike(region: Region) -> bool:
    """Return whether an update computation reduces all inputs by one op, so that results may be partial."""
    monoids = monoids_of(region)
    if not monoids or len({monoid.kind for monoid in monoids}) > 1:
        return False
    known = ("add", "multiply", "maximum", "minimum")
    return all(monoid.kind in known or (monoid.element.is_boolean and monoid.kind != "xor") for monoid in monoids)


def _indexed_factors(
    operand: tuple[int, ...],
    indices: tuple[int, ...],
    slices: tuple[int, ...],
    index_vector_dim: int,
    window_dims: Sequence[int],
    collapsed: Sequence[int],
    operand_batching: Sequence[int],
    indices_batching: Sequence[int],
    scattered: str | None,
    add: _Add,
) -> None:
    """Add the factors of a gather (`scattered` is None) or scatter (`scattered`: the kind of batch dimensions)."""
    windowed = iter([d for d in range(len(operand)) if d not in collapsed and d not in operand_batching])
    batch = iter([d for d in range(len(indices)) if d != index_vector_dim])
    for dimension, size in enumerate(slices):
        if dimension in window_dims:
            source = next(windowed)
            _window_factor(source, dimension, operand[source], size, scattered is not None, add)
            continue
        place = next(batch)
        if place in indices_batching:
            add(operand_batching[list(indices_batching).index(place)], place, dimension, size, PASS, False)
        else:
            add(None, place, dimension, size, PASS if scattered is None else scattered, False)
    for dimension in collapsed:
        size = operand[dimension]
        kind = PASS if scattered is not None else REPLICATE if size == 1 else REDUCE
        add(dimension, None, None, size, kind, False)
    if index_vector_dim < len(indices):
        add(None, index_vector_dim, None, indices[index_vector_dim], REPLICATE, False)


def _window_factor(source: int, dimension: int, size: int, taken: int, is_scatter: bool, add: _Add) -> None:
    if size == taken:
        add(source, None, dimension, size, PASS, False)
    elif is_scatter:
        add(source, None, None, size, REPLICATE, False)
        add(None, None, dimension, taken, REPLICATE, False)
    elif taken == 1:
        add(source, None, None, size, REDUCE, False)
        add(None, None, dimension, taken, REPLICATE, False)
    else:
        add(source, None, dimension, size, REPLICATE, True)


@rule("stablehlo.torch_index_select", published=False)
def torch_index_select(op: Op) -> Rule:
    """Return a rule that shares batch dimensions, replicates the selected one and passes the others."""
    builder = RuleBuilder(op)
    operand, index = builder.operand_shapes
    selected, batches = op["dim"], op["batch_dims"]
    place = 0
    for dimension, size in enumerate(operand):
        if dimension < batches:
            builder.factor([dimension, dimension], [place], size)
            place += 1
        elif dimension == selected:
            for offset, extent in enumerate(index[batches:]):
                builder.factor([None, batches + offset], [place + offset], extent)
            place += len(index) - batches
        else:
            builder.factor([dimension, None], [place], size)
            place += 1
    return builder.build()
