"""XlaOp, a value of the computation being built, with Python's operators; and the table of all operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeVar

from spmd.builder.shape import Shape
from spmd.ir import Value

R = TypeVar("R")
#: Operations by their public names, registered by `operation` (operation.py).
OPERATIONS: dict[str, Callable[..., XlaOp]] = {}


class Builder(ABC):
    """The part of a builder's interface that its values use."""

    @abstractmethod
    def name(self) -> str:
        """Return the computation's name."""

    @abstractmethod
    def GetShape(self, operand: XlaOp) -> Shape:
        """Return the inferred shape of `operand`."""

    @abstractmethod
    def perform(self, name: str, function: Callable[..., R], args: Sequence[object], kwargs: Mapping[str, object]) -> R:
        """Run operation `name`."""


class XlaOp:
    """A handle to a value. Operators are shorthands for operations:

    + - * / % ** are Add, Sub, Mul, Div, Rem, Pow; @ is Dot; & | ^ ~ are And, Or, Xor, Not; << is ShiftLeft, >>
    ShiftRightArithmetic for signed and ShiftRightLogical for unsigned integers; == != < <= > >= compare element by
    element. One side may be a Python number or an array, which becomes a constant of the other side's type.
    `x[2]` gets an element of a tuple; `x[1:3, ::2, 0]` a static slice of an array.
    """

    __slots__ = ("builder", "value")
    __array_ufunc__ = None  # makes NumPy defer `array + op` to XlaOp

    def __init__(self, builder: Builder, value: Value | None) -> None:
        self.builder = builder
        self.value = value

    @property
    def is_valid(self) -> bool:
        """Return False for the result of a failed operation while errors are recorded until Build."""
        return self.value is not None

    @property
    def shape(self) -> Shape:
        if self.value is not None:
            try:
                return Shape.of(self.value.type)
            except ValueError:  # GetShape reports it with its place
                pass
        return self.builder.GetShape(self)

    def __neg__(self) -> XlaOp:
        return _call("Neg", self)

    def __abs__(self) -> XlaOp:
        return _call("Abs", self)

    def __invert__(self) -> XlaOp:
        return _call("Not", self)

    def __rshift__(self, other: object) -> XlaOp:
        unsigned = self.value is not None and self.value.tensor.scalar_type.is_unsigned
        return _call("ShiftRightLogical" if unsigned else "ShiftRightArithmetic", self, other)

    def __getitem__(self, key: object) -> XlaOp:
        return _call("Index", self, key)

    def __iter__(self) -> NoReturn:
        raise TypeError("an XlaOp cannot be iterated; take the elements of a tuple by index")

    def __bool__(self) -> bool:
        raise TypeError("the value of an XlaOp is not known while the program is built; use Select or Conditional")

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<XlaOp {self.shape.brief}>" if self.is_valid else "<XlaOp of a failed operation>"

    def _binary(name: str) -> Callable[[XlaOp, object], XlaOp]:  # type: ignore[misc]
        return lambda self, other: _call(name, self, other)

    def _reflected(name: str) -> Callable[[XlaOp, object], XlaOp]:  # type: ignore[misc]
        return lambda self, other: _call(name, other, self)

    __add__, __radd__ = _binary("Add"), _reflected("Add")
    __sub__, __rsub__ = _binary("Sub"), _reflected("Sub")
    __mul__, __rmul__ = _binary("Mul"), _reflected("Mul")
    __truediv__, __rtruediv__ = _binary("Div"), _reflected("Div")
    __mod__, __rmod__ = _binary("Rem"), _reflected("Rem")
    __pow__, __rpow__ = _binary("Pow"), _reflected("Pow")
    __and__, __rand__ = _binary("And"), _reflected("And")
    __or__, __ror__ = _binary("Or"), _reflected("Or")
    __xor__, __rxor__ = _binary("Xor"), _reflected("Xor")
    __lshift__ = _binary("ShiftLeft")
    __matmul__ = _binary("Dot")
    __lt__, __le__, __gt__, __ge__ = _binary("Lt"), _binary("Le"), _binary("Gt"), _binary("Ge")
    __eq__, __ne__ = _binary("Eq"), _binary("Ne")  # type: ignore[assignment]

    del _binary, _reflected


def _call(name: str, *operands: object) -> XlaOp:
    return OPERATIONS[name](*operands)
