"""Ops that compute shapes, as dynamic programs use them. Source: MLIR's shape dialect.

Shapes are `!shape.shape` or `tensor<?xindex>`, sizes `!shape.size` or `index`, witnesses `!shape.witness`.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import at_least, compatible_shapes
from spmd.dialects.core import AttributeDef, OpDef, OperandDef, Trait, attribute, define, operand, region, result
from spmd.dialects.type_sets import ANY_TYPE, TypeSet
from spmd.ir import Op
from spmd.types import I1, INDEX, OpaqueType, TensorType, Type, UnrankedTensorType

SHAPE_TYPE = OpaqueType("!shape.shape")
SIZE_TYPE = OpaqueType("!shape.size")
WITNESS_TYPE = OpaqueType("!shape.witness")


def _is_extents(type: Type) -> bool:
    return isinstance(type, TensorType) and type.rank == 1 and type.element_type is INDEX


_SHAPE = TypeSet("shape or extent tensor", lambda type: type is SHAPE_TYPE or _is_extents(type))
_EXTENTS = TypeSet("extent tensor", _is_extents)
_SIZE = TypeSet("size or index", lambda type: type is SIZE_TYPE or type is INDEX)
INDEX_ONLY = TypeSet("index", lambda type: type is INDEX)
WITNESS = TypeSet("witness", lambda type: type is WITNESS_TYPE)
_PREDICATE = TypeSet("i1", lambda type: type is I1)
_SHAPED = TypeSet(
    "tensor or shape", lambda type: type is SHAPE_TYPE or isinstance(type, (TensorType, UnrankedTensorType))
)


def _pure(
    name: str,
    operands: Sequence[OperandDef],
    result_def: OperandDef,
    *,
    always: Type | None = None,
    attributes: Sequence[AttributeDef] = (),
    assembly: str | None = None,
) -> OpDef:
    """Declare a pure op with one result.

    `always` is the result's type if it is fixed. By default the assembly is the operands, their types, and the result's
    type, omitted if it is `always` the same.
    """
    if assembly is None:
        values = " `,` ".join(f"${each.name}" for each in operands)
        types = " `,` ".join(f"type(${each.name})" for each in operands)
        assembly = f"{values} attr-dict `:` {types}" + ("" if always else f" `->` type(${result_def.name})")
    declared = define(
        f"shape.{name}",
        operands=operands,
        attributes=attributes,
        results=[result_def],
        assembly=assembly,
        traits=[Trait.PURE],
    )
    if always is not None:
        declared.infer(lambda op: [always])
    return declared


_SHAPES = operand("shapes", _SHAPE, variadic=True)
_MADE_WITNESS = result("result", WITNESS)

_pure("broadcast", [_SHAPES], result("result", _SHAPE))
_pure("concat", [operand("lhs", _SHAPE), operand("rhs", _SHAPE)], result("result", _SHAPE))
_pure("is_broadcastable", [_SHAPES], result("result", _PREDICATE), always=I1)
_pure("shape_eq", [_SHAPES], result("result", _PREDICATE), always=I1)

for _name in ("add", "mul", "div"):
    _pure(_name, [operand("lhs", _SIZE), operand("rhs", _SIZE)], result("result", _SIZE))

_pure("dim", [operand("value", _SHAPED), operand("index", _SIZE)], result("extent", _SIZE))
_pure("get_extent", [operand("shape", _SHAPE), operand("dim", _SIZE)], result("extent", _SIZE))
_pure("num_elements", [operand("arg", _SHAPE)], result("result", _SIZE))
_pure("rank", [operand("arg", _SHAPE)], result("result", _SIZE))

_pure("to_extent_tensor", [operand("arg", _SHAPE)], result("result", _EXTENTS))
_pure("from_extent_tensor", [operand("input", type_sets.DIMENSIONS)], result("result", _SHAPE), always=SHAPE_TYPE)
_pure("from_extents", [operand("extents", _SIZE, variadic=True)], result("shape", _SHAPE), always=SHAPE_TYPE)
_pure("size_to_index", [operand("arg", _SIZE)], result("result", INDEX_ONLY), always=INDEX)
_pure(
    "index_to_size",
    [operand("arg", INDEX_ONLY)],
    result("result", _SIZE),
    always=SIZE_TYPE,
    assembly="$arg attr-dict",
)

SHAPE_OF = _pure("shape_of", [operand("arg", _SHAPED)], result("result", _SHAPE))


@SHAPE_OF.constraint("", "the result must have an extent for each dimension", on_results=True)
def _(op: Op) -> str | None:
    shape_type, extent_type = op.operands[0].type, op.result.type
    if not (isinstance(shape_type, TensorType) and isinstance(extent_type, TensorType)):
        return None
    return None if compatible_shapes(extent_type.shape, (shape_type.rank,)) else f"{extent_type} for {shape_type}"


_pure(
    "const_shape",
    [],
    result("result", _SHAPE),
    attributes=[attribute("shape", kinds.INDEX_DENSE)],
    assembly="custom<ConstShape>",
)
_pure(
    "const_size",
    [],
    result("result", _SIZE),
    always=SIZE_TYPE,
    attributes=[attribute("value", kinds.INDEX)],
    assembly="$value attr-dict",
)
_pure(
    "const_witness",
    [],
    _MADE_WITNESS,
    always=WITNESS_TYPE,
    attributes=[attribute("passing", kinds.BOOL)],
    assembly="$passing attr-dict",
)

CSTR_BROADCASTABLE = _pure("cstr_broadcastable", [_SHAPES], _MADE_WITNESS, always=WITNESS_TYPE)
CSTR_BROADCASTABLE.constraint("", "there must be at least two shapes")(lambda op: at_least(len(op.operands), 2))
_pure("cstr_eq", [_SHAPES], _MADE_WITNESS, always=WITNESS_TYPE)
_pure(
    "cstr_require",
    [operand("pred", _PREDICATE)],
    _MADE_WITNESS,
    always=WITNESS_TYPE,
    attributes=[attribute("msg", kinds.STRING)],
    assembly="$pred `,` $msg attr-dict",
)
_pure(
    "assuming_all",
    [operand("inputs", WITNESS, variadic=True)],
    _MADE_WITNESS,
    always=WITNESS_TYPE,
    assembly="$inputs attr-dict",
)

define(
    "shape.assuming",
    operands=[operand("witness", WITNESS)],
    results=[result("results", ANY_TYPE, variadic=True)],
    regions=[region("doRegion")],
    assembly="custom<Assuming>",
    traits=[Trait.RECURSIVE],
)
define(
    "shape.assuming_yield",
    operands=[operand("operands", ANY_TYPE, variadic=True)],
    assembly="attr-dict ($operands^ `:` type($operands))?",
    traits=[Trait.PURE, Trait.TERMINATOR],
)
