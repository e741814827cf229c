"""Ops that compute shapes, as dynamic programs use them. Source: MLIR's shape dialect.

Shapes are `!shape.shape` or `tensor<?xindex>`, sizes `!shape.size` or `index`, witnesses `!shape.witness`.
"""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.checks import at_least, compatible_shapes
from spmd.dialects.core import Infer, OpDef, attribute, define, operand, region, result
from spmd.dialects.kinds import ANY_TYPE, TypeSet
from spmd.ir import Op
from spmd.types import I1, INDEX, OpaqueType, TensorType, Type, UnrankedTensorType

SHAPE_TYPE = OpaqueType("!shape.shape")
SIZE_TYPE = OpaqueType("!shape.size")
WITNESS_TYPE = OpaqueType("!shape.witness")


def _is_extents(type: Type) -> bool:
    return isinstance(type, TensorType) and type.rank == 1 and type.element_type is INDEX


_SHAPE = TypeSet("shape or extent tensor", lambda type: type is SHAPE_TYPE or _is_extents(type))
_SIZE = TypeSet("size or index", lambda type: type is SIZE_TYPE or type is INDEX)
_WITNESS = TypeSet("witness", lambda type: type is WITNESS_TYPE)
_PREDICATE = TypeSet("i1", lambda type: type is I1)
_SHAPED = TypeSet(
    "tensor or shape", lambda type: type is SHAPE_TYPE or isinstance(type, (TensorType, UnrankedTensorType))
)


def _of_shapes(name: str, types: TypeSet, *, typed: bool = False) -> OpDef:
    """An op on any number of shapes; the result's type is written only when `typed`."""
    return define(
        f"shape.{name}",
        operands=[operand("shapes", _SHAPE, variadic=True)],
        results=[result("result", types)],
        assembly="$shapes attr-dict `:` type($shapes)" + (" `->` type($result)" if typed else ""),
        traits=["pure"],
    )


def _convert(name: str, source: TypeSet, target: TypeSet) -> OpDef:
    return define(
        f"shape.{name}",
        operands=[operand("arg", source)],
        results=[result("result", target)],
        assembly="$arg attr-dict `:` type($arg) `->` type($result)",
        traits=["pure"],
    )


BROADCAST = _of_shapes("broadcast", _SHAPE, typed=True)
CSTR_BROADCASTABLE = _of_shapes("cstr_broadcastable", _WITNESS)
CSTR_EQ = _of_shapes("cstr_eq", _WITNESS)
CSTR_BROADCASTABLE.constraint("", "there are two shapes at least")(lambda op: at_least(len(op.operands), 2))
IS_BROADCASTABLE = _of_shapes("is_broadcastable", _PREDICATE)
SHAPE_EQ = _of_shapes("shape_eq", _PREDICATE)

SHAPE_OF = _convert("shape_of", _SHAPED, _SHAPE)


@SHAPE_OF.constraint("", "the result has an extent for each dimension", on_results=True)
def _(op: Op) -> str | None:
    given, made = op.operands[0].type, op.result.type
    if not (isinstance(given, TensorType) and isinstance(made, TensorType)):
        return None
    return None if compatible_shapes(made.shape, (given.rank,)) else f"{made} for {given}"


NUM_ELEMENTS = _convert("num_elements", _SHAPE, _SIZE)
RANK = _convert("rank", _SHAPE, _SIZE)
TO_EXTENT_TENSOR = _convert("to_extent_tensor", _SHAPE, TypeSet("extent tensor", _is_extents))

CONCAT = define(
    "shape.concat",
    operands=[operand("lhs", _SHAPE), operand("rhs", _SHAPE)],
    results=[result("result", _SHAPE)],
    assembly="$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)",
    traits=["pure"],
)

for _name in ("add", "mul", "div"):
    define(
        f"shape.{_name}",
        operands=[operand("lhs", _SIZE), operand("rhs", _SIZE)],
        results=[result("result", _SIZE)],
        assembly="$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)",
        traits=["pure"],
    )

DIM = define(
    "shape.dim",
    operands=[operand("value", _SHAPED), operand("index", _SIZE)],
    results=[result("extent", _SIZE)],
    assembly="$value `,` $index attr-dict `:` type($value) `,` type($index) `->` type($extent)",
    traits=["pure"],
)

GET_EXTENT = define(
    "shape.get_extent",
    operands=[operand("shape", _SHAPE), operand("dim", _SIZE)],
    results=[result("extent", _SIZE)],
    assembly="$shape `,` $dim attr-dict `:` type($shape) `,` type($dim) `->` type($extent)",
    traits=["pure"],
)

FROM_EXTENTS = define(
    "shape.from_extents",
    operands=[operand("extents", _SIZE, variadic=True)],
    results=[result("shape", _SHAPE)],
    assembly="$extents attr-dict `:` type($extents)",
    traits=["pure"],
)

FROM_EXTENT_TENSOR = define(
    "shape.from_extent_tensor",
    operands=[operand("input", kinds.DIMENSIONS)],
    results=[result("result", _SHAPE)],
    assembly="$input attr-dict `:` type($input)",
    traits=["pure"],
)

INDEX_TO_SIZE = define(
    "shape.index_to_size",
    operands=[operand("arg", TypeSet("index", lambda type: type is INDEX))],
    results=[result("result", _SIZE)],
    assembly="$arg attr-dict",
    traits=["pure"],
)

SIZE_TO_INDEX = define(
    "shape.size_to_index",
    operands=[operand("arg", _SIZE)],
    results=[result("result", TypeSet("index", lambda type: type is INDEX))],
    assembly="$arg attr-dict `:` type($arg)",
    traits=["pure"],
)

CONST_SHAPE = define(
    "shape.const_shape",
    attributes=[attribute("shape", kinds.INDEX_DENSE)],
    results=[result("result", _SHAPE)],
    assembly="custom<ConstShape>",
    traits=["pure"],
)

CONST_SIZE = define(
    "shape.const_size",
    attributes=[attribute("value", kinds.INDEX)],
    results=[result("result", _SIZE)],
    assembly="$value attr-dict",
    traits=["pure"],
)

CONST_WITNESS = define(
    "shape.const_witness",
    attributes=[attribute("passing", kinds.BOOL)],
    results=[result("result", _WITNESS)],
    assembly="$passing attr-dict",
    traits=["pure"],
)

CSTR_REQUIRE = define(
    "shape.cstr_require",
    operands=[operand("pred", _PREDICATE)],
    attributes=[attribute("msg", kinds.STRING)],
    results=[result("result", _WITNESS)],
    assembly="$pred `,` $msg attr-dict",
    traits=["pure"],
)

ASSUMING_ALL = define(
    "shape.assuming_all",
    operands=[operand("inputs", _WITNESS, variadic=True)],
    results=[result("result", _WITNESS)],
    assembly="$inputs attr-dict",
    traits=["pure"],
)

ASSUMING = define(
    "shape.assuming",
    operands=[operand("witness", _WITNESS)],
    results=[result("results", ANY_TYPE, variadic=True)],
    regions=[region("doRegion")],
    assembly="custom<Assuming>",
    traits=["recursive"],
)

ASSUMING_YIELD = define(
    "shape.assuming_yield",
    operands=[operand("operands", ANY_TYPE, variadic=True)],
    assembly="attr-dict ($operands^ `:` type($operands))?",
    traits=["pure", "terminator"],
)


def _always(type: Type) -> Infer:
    return lambda op: [type]


for _declared, _type in (
    (CSTR_BROADCASTABLE, WITNESS_TYPE),
    (CSTR_EQ, WITNESS_TYPE),
    (CSTR_REQUIRE, WITNESS_TYPE),
    (CONST_WITNESS, WITNESS_TYPE),
    (ASSUMING_ALL, WITNESS_TYPE),
    (IS_BROADCASTABLE, I1),
    (SHAPE_EQ, I1),
    (FROM_EXTENTS, SHAPE_TYPE),
    (FROM_EXTENT_TENSOR, SHAPE_TYPE),
    (INDEX_TO_SIZE, SIZE_TYPE),
    (CONST_SIZE, SIZE_TYPE),
    (SIZE_TO_INDEX, INDEX),
):
    _declared.infer(_always(_type))
