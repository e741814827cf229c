"""Ops between tensors and scalars of builtin types, as dynamic programs use them. Source: MLIR's tensor dialect."""

from __future__ import annotations

from spmd.dialects.core import define, operand, result
from spmd.dialects.kinds import ANY_TYPE, TypeSet
from spmd.types import INDEX, TensorType, UnrankedTensorType

_INDEX = TypeSet("index", lambda type: type is INDEX)
_RANKED = TypeSet("ranked tensor", lambda type: isinstance(type, TensorType))
_SHAPED = TypeSet("tensor", lambda type: isinstance(type, (TensorType, UnrankedTensorType)))

DIM = define(
    "tensor.dim",
    operands=[operand("source", _SHAPED), operand("index", _INDEX)],
    results=[result("result", _INDEX)],
    assembly="$source `,` $index attr-dict `:` type($source)",
    traits=["pure"],
)

RANK = define(
    "tensor.rank",
    operands=[operand("tensor", _SHAPED)],
    results=[result("result", _INDEX)],
    assembly="$tensor attr-dict `:` type($tensor)",
    traits=["pure"],
)

EXTRACT = define(
    "tensor.extract",
    operands=[operand("tensor", _RANKED), operand("indices", _INDEX, variadic=True)],
    results=[result("result", ANY_TYPE)],
    assembly="$tensor `[` $indices `]` attr-dict `:` type($tensor)",
    traits=["pure"],
)

FROM_ELEMENTS = define(
    "tensor.from_elements",
    operands=[operand("elements", ANY_TYPE, variadic=True)],
    results=[result("result", _RANKED)],
    assembly="$elements attr-dict `:` type($result)",
    traits=["pure"],
)

CAST = define(
    "tensor.cast",
    operands=[operand("source", _SHAPED)],
    results=[result("dest", _SHAPED)],
    assembly="$source attr-dict `:` type($source) `to` type($dest)",
    traits=["pure"],
)

DIM.infer(lambda op: [INDEX])
RANK.infer(lambda op: [INDEX])
EXTRACT.infer(lambda op: [op.operands[0].tensor.element_type])
