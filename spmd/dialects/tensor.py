"""Ops between tensors and scalars of builtin types, as dynamic programs use them. Source: MLIR's tensor dialect."""

from __future__ import annotations

from spmd.dialects.checks import element_of, listed, same_shape
from spmd.dialects.core import OpDef, OperandDef, Trait, define, operand, result
from spmd.dialects.type_sets import ANY_TYPE, TypeSet
from spmd.ir import Op
from spmd.types import INDEX, TensorType, UnrankedTensorType

_INDEX = TypeSet("index", lambda type: type is INDEX)
_RANKED = TypeSet("ranked tensor", lambda type: isinstance(type, TensorType))
_SHAPED = TypeSet("tensor", lambda type: isinstance(type, (TensorType, UnrankedTensorType)))


def _pure(name: str, operands: list[OperandDef], output: OperandDef, assembly: str) -> OpDef:
    """Declare a pure op with one result."""
    return define(f"tensor.{name}", operands=operands, results=[output], assembly=assembly, traits=[Trait.PURE])


DIM = _pure(
    "dim",
    [operand("source", _SHAPED), operand("index", _INDEX)],
    result("result", _INDEX),
    "attr-dict $source `,` $index `:` type($source)",
)

RANK = _pure("rank", [operand("tensor", _SHAPED)], result("result", _INDEX), "$tensor attr-dict `:` type($tensor)")

EXTRACT = _pure(
    "extract",
    [operand("tensor", _RANKED), operand("indices", _INDEX, variadic=True)],
    result("result", ANY_TYPE),
    "$tensor `[` $indices `]` attr-dict `:` type($tensor)",
)

FROM_ELEMENTS = _pure(
    "from_elements",
    [operand("elements", ANY_TYPE, variadic=True)],
    result("result", _RANKED),
    "$elements attr-dict `:` type($result)",
)

CAST = _pure(
    "cast",
    [operand("source", _SHAPED)],
    result("dest", _SHAPED),
    "$source attr-dict `:` type($source) `to` type($dest)",
)


@DIM.constraint("", "the source must have dimensions")
def _(op: Op) -> str | None:
    source = op.operands[0].type
    return str(source) if isinstance(source, TensorType) and not source.rank else None


@EXTRACT.constraint("", "there must be an index for each dimension")
def _(op: Op) -> str | None:
    rank, count = op.operands[0].tensor.rank, len(op.operands) - 1
    return None if rank == count else f"{count} for {op.operands[0].type}"


@FROM_ELEMENTS.constraint(
    "", "elements have the result's element type, and there are as many as it has", on_results=True
)
def _(op: Op) -> str | None:
    result_type = op.result.tensor
    sound = result_type.is_static and result_type.size == len(op.operands)
    if sound and all(type is result_type.element_type for type in op.operand_types):
        return None
    return f"{listed(op.operand_types)} for {result_type}"


@CAST.constraint("", "source and dest must have one element type and compatible shapes", on_results=True)
def _(op: Op) -> str | None:
    source, target = op.operands[0].type, op.result.type
    sound = element_of(source) is element_of(target) and same_shape(source, target) is None
    return None if sound else f"{source} and {target}"


DIM.infer(lambda op: [INDEX])
RANK.infer(lambda op: [INDEX])
EXTRACT.infer(lambda op: [op.operands[0].tensor.element_type])
