"""The op that sorts. Source: StableHLO specification, sort."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.checks import at_least, element_of, listed, parameters, returned, same_shape, signature
from spmd.dialects.core import Trait, attribute, define, operand, region, result
from spmd.ir import Op
from spmd.types import I1, TensorType

SORT = define(
    "stablehlo.sort",
    operands=[operand("inputs", variadic=True)],
    attributes=[
        attribute("dimension", kinds.I64, default=-1),
        attribute("is_stable", kinds.BOOL, default=False),
    ],
    results=[result("results", variadic=True)],
    regions=[region("comparator")],
    traits=[Trait.RECURSIVE],
)

SORT.constraint("C1", "0 < size(inputs)")(lambda op: at_least(len(op.operands), 1))
SORT.constraint("C3", "same(shape(inputs...) + shape(results...))")(
    lambda op: same_shape(*op.operand_types, *op.result_types)
)


@SORT.constraint("C4", "-R <= dimension < R, where R = rank(inputs[0])")
def _(op: Op) -> str | None:
    rank = op.operands[0].tensor.rank
    return None if -rank <= op["dimension"] < rank else f"{op['dimension']} for rank {rank}"


@SORT.constraint("C5", "comparator has type (tensor<E0>, tensor<E0>, tensor<E1>, tensor<E1>, ...) -> tensor<i1>")
def _(op: Op) -> str | None:
    scalars = [TensorType((), element_of(type)) for type in op.operand_types]
    expected = [scalar for scalar in scalars for _ in range(2)]
    comparator = op.regions[0]
    if parameters(comparator) == expected and returned(comparator) == [TensorType((), I1)]:
        return None
    return f"{signature(comparator)} for inputs {listed(op.operand_types)}"


SORT.infers("C2", "type(inputs...) = type(results...)")(lambda op: op.operand_types)
