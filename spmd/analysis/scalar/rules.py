"""The table of elementwise ops: what each computes for one point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spmd.analysis.scalar.build import call, extend
from spmd.analysis.scalar.elements import Element, round_to
from spmd.analysis.scalar.expression import Expression, Primitive
from spmd.analysis.scalar.functions import DEFINITIONS
from spmd.analysis.scalar.narrow import has_mantissa
from spmd.ir import Op
from spmd.support.registry import filed
from spmd.types import ELEMENT_TYPES, F16, ElementType

#: What an op gives for one point, from its operands' elements there; None where its types have no scalar form.
Rule = Callable[[Op, Sequence[Element]], list[Element] | None]
#: A function of registers.
Real = Callable[..., Expression]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of the ops `names`."""
    return filed(RULES, names, "scalar rule")


def element_of(op: Op, index: int = 0) -> ElementType:
    """Element type of an operand that is not quantized."""
    element = op.operands[index].tensor.element_type
    assert isinstance(element, ElementType)
    return element


def result_element(op: Op) -> ElementType:
    """Element type of the result, which is not quantized."""
    element = op.result.tensor.element_type
    assert isinstance(element, ElementType)
    return element


#: Floats whose registers hold nothing that the type does not: they have -0, negative numbers and NaN or infinity.
_NO_NEGATIVE_ZERO = ("FNU", "FNUZ")


@dataclass(frozen=True)
class ScalarRule:
    """An elementwise function by kind of element type; None where the op does not admit the kind.

    `real` takes and gives f32 or f64; the result is rounded to a narrower type, unless the function is `exact`: gives
    an operand, or its negative. The f32 result of a type that is `doubled`, rounded once more, would not always be the
    exact one rounded once: it is computed in f64. `complex` takes and gives elements, of f32 or f64 parts. Integers of
    2 and 4 bits are computed in 8 and wrapped.
    """

    real: Real | None = None
    complex: Callable[..., Element] | None = None
    signed: Real | None = None
    unsigned: Real | None = None
    boolean: Real | None = None
    exact: bool = False
    doubled: frozenset[ElementType] = frozenset()

    def compute(self, element_type: ElementType, operands: Sequence[Element]) -> Element | None:
        """Return the function of elements of `element_type`; None where it is not defined."""
        if element_type.is_complex:
            return None if self.complex is None else self.complex(*operands)
        function = self._on_registers(element_type)
        if function is None:
            return None
        registers = [operand[0] for operand in operands]
        wide = element_type in self.doubled
        if wide or (element_type.is_float and not has_mantissa(element_type)):  # whose products reach beyond f32
            registers = [extend(register) for register in registers]
        result = (function(*registers),)
        if self.exact and element_type.is_float and not element_type.name.endswith(_NO_NEGATIVE_ZERO):
            return result
        return round_to(result, element_type)

    def _on_registers(self, element_type: ElementType) -> Real | None:
        if element_type.is_float:
            return self.real
        if element_type.is_boolean:
            return self.boolean
        return self.signed if element_type.is_signed else self.unsigned


#: What functions of one operand compute in f64: bf16 has 16 bits less than f32, so that few numbers lie near a tie, and
#: tests go through all of them.
HALF = frozenset({F16})
#: What functions of two operands do: nobody can try all pairs.
NARROW = frozenset(each for each in ELEMENT_TYPES.values() if each.is_float and each.bits < 32)


def function(
    primitive: Primitive,
    complex: Callable[..., Element] | None = None,
    doubled: frozenset[ElementType] = HALF,
) -> ScalarRule:
    """Return the rule of a function of floats, which its definition gives to a few units in the last place."""
    real = (lambda *operands: call(primitive, *operands)) if primitive in DEFINITIONS else None
    return ScalarRule(real, complex, doubled=doubled)
