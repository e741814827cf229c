"""Products of transposed operands become products over other dimensions: BLAS takes either order of a matrix."""

from __future__ import annotations

from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Block, Op, Value

DOT = "stablehlo.dot_general"


def fold_transposes(block: Block) -> None:
    """Folds transposes into the `dot_general`s of `block`, and of the regions inside it, that read them; in place."""
    replaced: dict[Value, Value] = {}
    for place, op in enumerate(block.ops):
        for inner in op.walk() if replaced else ():
            inner.replace_operands(replaced)
        for region in op.regions:
            for nested in region.blocks:
                fold_transposes(nested)
        if op.name == DOT:
            folded = _folded(op)
            if folded is not op:
                replaced.update(zip(op.results, folded.results, strict=True))
                block.ops[place] = folded


def _folded(op: Op) -> Op:
    numbers = op["dot_dimension_numbers"]
    lhs, rhs = op.operands
    left = _through(lhs, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right = _through(rhs, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    if left[0] is lhs and right[0] is rhs:
        return op
    made = DotDimensionNumbersAttr(left[1], right[1], left[2], right[2])
    return op.clone([left[0], right[0]], attributes={**op.attributes, "dot_dimension_numbers": made})


def _through(
    value: Value, batching: tuple[int, ...], contracting: tuple[int, ...]
) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """What `value` is a transpose of, with the dimensions that are batched and contracted there; itself otherwise.

    The other dimensions must keep their order, which is theirs in the result.
    """
    op = value.defining_op
    if op is None or op.name != "stablehlo.transpose":
        return value, batching, contracting
    permutation = op["permutation"]
    free = [permutation[d] for d in range(len(permutation)) if d not in batching and d not in contracting]
    if free != sorted(free):
        return value, batching, contracting
    source = op.operands[0]
    return _through(source, tuple(permutation[d] for d in batching), tuple(permutation[d] for d in contracting))
