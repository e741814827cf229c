"""The table of scalar rules of elementwise ops."""

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

#: Maps an op and its operands' elements at one index to its results' elements; None if its types have no scalar form.
Rule = Callable[[Op, Sequence[Element]], list[Element] | None]
#: A function on registers.
Real = Callable[..., Expression]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule of the ops `names`."""
    return filed(RULES, names, "scalar rule")


def element_of(op: Op, index: int = 0) -> ElementType:
    """Return the element type of an operand, which must not be quantized."""
    element = op.operands[index].tensor.element_type
    assert isinstance(element, ElementType)
    return element


def result_element(op: Op) -> ElementType:
    """Return the element type of the result, which must not be quantized."""
    element = op.result.tensor.element_type
    assert isinstance(element, ElementType)
    return element


#: Suffixes of floats without -0 or negative numbers, whose `exact` results need rounding as well.
_NO_NEGATIVE_ZERO = ("FNU", "FNUZ")


@dataclass(frozen=True)
class ScalarRule:
    """An elementwise function by kind of element type; None for kinds that the op does not support.

    `real` is a function of f32 or f64, whose result is rounded to a narrower type unless it is `exact`: an operand or
    its negative. `doubled` types are computed in f64, since rounding their f32 result again would not always be
    correct. `complex` is a function of elements with f32 or f64 parts. Integers of 2 and 4 bits are computed in 8 and
    wrapped.
    """

    real: Real | None = None
    complex: Callable[..., Element] | None = None
    signed: Real | None = None
    unsigned: Real | None = None
    boolean: Real | None = None
    exact: bool = False
    doubled: frozenset[ElementType] = frozenset()

    def compute(self, element_type: ElementType, operands: Sequence[Element]) -> Element | None:
        """Return the function applied to elements of `element_type`; None if it is not defined there."""
        if element_type.is_complex:
            return None if self.complex is None else self.complex(*operands)
        function = self._on_registers(element_type)
        if function is None:
            return None
        registers = [operand[0] for operand in operands]
        wide = element_type in self.doubled
        if wide or (element_type.is_float and not has_mantissa(element_type)):  # products may exceed f32's range
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


#: Narrow types for which unary functions compute in f64. bf16 has 16 bits fewer than f32, so that few results are near
#: a tie; tests cover all of them.
HALF = frozenset({F16})
#: The same for binary functions, whose operands cannot all be tested.
NARROW = frozenset(each for each in ELEMENT_TYPES.values() if each.is_float and each.bits < 32)


def function(
    primitive: Primitive,
    complex: Callable[..., Element] | None = None,
    doubled: frozenset[ElementType] = HALF,
) -> ScalarRule:
    """Return the rule of a function of floats, accurate to a few ULPs."""
    real = (lambda *operands: call(primitive, *operands)) if primitive in DEFINITIONS else None
    return ScalarRule(real, complex, doubled=doubled)
