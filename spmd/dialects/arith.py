"""Arithmetic on scalars of builtin types and tensors of them. Source: MLIR's arith dialect."""

from __future__ import annotations

from spmd import types as t
from spmd.dialects import kinds
from spmd.dialects.checks import element_of, equal, listed, same_shape, same_types
from spmd.dialects.core import OPS, OpDef, Trait, attribute, define, operand, result
from spmd.dialects.declarations import define_constant
from spmd.dialects.shapes import with_element
from spmd.dialects.type_sets import TypeSet
from spmd.ir import Op


def _like(text: str, *element_kinds: str) -> TypeSet:
    """Return the set of scalars of these kinds, and tensors of them."""

    def admits(type: t.Type) -> bool:
        element = type.element_type if isinstance(type, t.TensorType) else type
        return isinstance(element, t.ElementType) and element.kind in element_kinds

    return TypeSet(f"{text}, or a tensor of it", admits)


_INTEGER = _like("signless integer or index", "i1", "signed", "index")
_FLOAT = _like("floating-point number", "float")
_BOOLEAN = _like("boolean", "i1")
_VALUE = _like("number", "i1", "signed", "index", "float")
_CONSTANT = _like("number", "i1", "signed", "index", "float", "complex")


def _one_type(declared: OpDef) -> None:
    """Declare that operands and the result have the same type."""
    declared.constraint("", "operands and the result must have one type", on_results=True)(
        lambda op: equal(*op.operand_types, *op.result_types)
    )
    declared.infers("", "operands and the result must have one type")(lambda op: [op.operands[0].type])


def _same_shape(op: Op) -> str | None:
    types = op.operands[0].type, op.results[0].type
    scalars = [element_of(type) is type for type in types]
    return same_shape(*types) if not any(scalars) else (None if all(scalars) else listed(types))


def _of_booleans(type: t.Type) -> t.Type:
    return with_element(type, t.I1) if isinstance(type, t.TensorType) else t.I1


CONSTANT = define_constant(
    "arith.constant", value=kinds.TYPED, output="result", types=_CONSTANT, assembly="attr-dict $value"
)
CONSTANT.infers("", "the result has the type of value")(lambda op: [getattr(op["value"], "type", t.I1)])

_BINARY = {
    _INTEGER: (
        "addi", "subi", "muli", "divsi", "divui", "ceildivsi", "ceildivui", "floordivsi", "remsi", "remui", "maxsi",
        "maxui", "minsi", "minui", "andi", "ori", "xori", "shli", "shrsi", "shrui",
    ),
    _FLOAT: ("addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf"),
}  # fmt: skip

for _kind, _names in _BINARY.items():
    for _name in _names:
        _one_type(
            define(
                f"arith.{_name}",
                operands=[operand("lhs", _kind), operand("rhs", _kind)],
                results=[result("result", _kind)],
                assembly="$lhs `,` $rhs attr-dict `:` type($result)",
                traits=[Trait.PURE, Trait.ELEMENTWISE, Trait.SAME_TYPE],
            )
        )

for _name, _source, _target in (
    ("index_cast", _INTEGER, _INTEGER),
    ("index_castui", _INTEGER, _INTEGER),
    ("extsi", _INTEGER, _INTEGER),
    ("extui", _INTEGER, _INTEGER),
    ("trunci", _INTEGER, _INTEGER),
    ("sitofp", _INTEGER, _FLOAT),
    ("uitofp", _INTEGER, _FLOAT),
    ("fptosi", _FLOAT, _INTEGER),
    ("fptoui", _FLOAT, _INTEGER),
    ("extf", _FLOAT, _FLOAT),
    ("truncf", _FLOAT, _FLOAT),
):
    define(
        f"arith.{_name}",
        operands=[operand("in", _source)],
        results=[result("out", _target)],
        assembly="$in attr-dict `:` type($in) `to` type($out)",
        traits=[Trait.PURE, Trait.ELEMENTWISE],
    ).constraint("", "the result must have the operand's shape", on_results=True)(_same_shape)


def _indexed(op: Op) -> str | None:
    elements = [element_of(type) for type in (op.operands[0].type, op.results[0].type)]
    return None if elements.count(t.INDEX) == 1 else listed(elements)


for _name in ("index_cast", "index_castui"):
    OPS[f"arith.{_name}"].constraint("", "one of operand and result must be of indices", on_results=True)(_indexed)

CMPI = define(
    "arith.cmpi",
    operands=[operand("lhs", _INTEGER), operand("rhs", _INTEGER)],
    attributes=[
        attribute(
            "predicate",
            kinds.integer_enum(t.I64, "eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"),
        )
    ],
    results=[result("result", _BOOLEAN)],
    assembly="$predicate `,` $lhs `,` $rhs attr-dict `:` type($lhs)",
    traits=[Trait.PURE, Trait.ELEMENTWISE],
)
CMPI.constraint("", "lhs and rhs must have one type")(lambda op: same_types(*op.operand_types))
CMPI.infers("", "the result has the operands' shape, of booleans")(lambda op: [_of_booleans(op.operands[0].type)])

SELECT = define(
    "arith.select",
    operands=[operand("condition", _BOOLEAN), operand("true_value", _VALUE), operand("false_value", _VALUE)],
    results=[result("result", _VALUE)],
    assembly="custom<ArithSelect>",
    traits=[Trait.PURE, Trait.ELEMENTWISE],
)
SELECT.constraint("", "true_value and false_value must have one type")(lambda op: same_types(*op.operand_types[1:]))
SELECT.infers("", "true_value and false_value must have one type")(lambda op: [op.operands[1].type])
