"""XlaBuilder, and XlaOp: the values it hands out.

Source: the XlaBuilder operation semantics; ComputationBuilder of the TensorFlow compiler framework document for the
keeping of errors, sub-builders and the return value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from spmd import types as t
from spmd.builder.computation import SHARDING, XlaComputation, element_of, make, pack, unpack
from spmd.builder.constants import is_constant
from spmd.builder.errors import ArgumentError, BuilderError
from spmd.builder.shape import ProgramShape, Shape
from spmd.builder.xla_op import OPERATIONS, Builder, XlaOp
from spmd.dialects.bounded import at_bounds, bounded_results, takes_bounded
from spmd.dialects.core import OPS, InferenceError, OpDef, Trait
from spmd.dialects.faults import Fault, attribute_faults, constraint_faults, mistyped
from spmd.errors import UNKNOWN, Diagnostic, Location, PythonLocation, UsageError
from spmd.ir import AttributeValue, Block, NumberedValue, Op, Region, Value
from spmd.ir.attributes import DenseAttr, StringAttr
from spmd.support.arrays import Array

__all__ = ["XlaBuilder", "XlaOp"]

R = TypeVar("R")
#: Packages whose lines are never the caller's.
_OURS = ("spmd.builder", "spmd.client")


def _computation_name(first: object, second: str | None) -> str:
    if isinstance(first, str) and second is None:
        return first
    if isinstance(first, str) or not isinstance(second, str):
        raise UsageError("an XlaBuilder takes the name of its computation, or a client and that name")
    return second


class XlaBuilder(Builder):
    """Builds one computation, op by op.

    Every operation of `spmd.builder.ops` is also a method: `builder.Add(x, y)`. The computation's result is the value
    added last, or the one given to Build or SetReturnValue.

    An error in a call is raised at once; with `die_immediately_on_error=False` it is kept, the call returns a value
    without a shape, and Build raises all that were kept.
    """

    def __init__(
        self,
        name: object = "computation",
        computation_name: str | None = None,
        *,
        die_immediately_on_error: bool = True,
    ) -> None:
        """`XlaBuilder("axpy")`, or as some of the document's examples have it, `XlaBuilder(client, "axpy")`.

        Whoever runs the computation chooses a client, so that the one given here is not kept.
        """
        self._name = _computation_name(name, computation_name)
        self.block = Block()
        self.called: dict[str, XlaComputation] = {}
        self.die_immediately_on_error = die_immediately_on_error
        self._parameters: dict[int, tuple[Value, str, Shape]] = {}
        self._kept: list[Diagnostic] = []
        self._last: Value | None = None
        self._return: Value | None = None
        self._token: Value | None = None
        self._sharding: str | None = None
        self._parameter_shardings: dict[int, str] = {}
        self._location: Location = UNKNOWN
        self._depth = 0

    def name(self) -> str:
        return self._name

    def set_die_immediately_on_error(self, enabled: bool) -> None:
        """Whether an error is raised by the call that makes it (the default) or kept until Build."""
        self.die_immediately_on_error = enabled

    def __getattr__(self, name: str) -> Callable[..., XlaOp]:
        function = OPERATIONS.get(name)
        if function is None:
            raise AttributeError(f"{type(self).__name__} has no operation {name}")
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *OPERATIONS]

    # --- shardings ---------------------------------------------------------------------------------------------------

    def set_sharding(self, sharding: str) -> None:
        """Values added from here on are laid out as GSPMD's `sharding` says (`{devices=[2,1]<=[2]}`)."""
        self._sharding = sharding

    def mark(self, operand: XlaOp, sharding: str) -> None:
        """`operand` alone is laid out as `sharding` says; parameters by set_sharding only."""
        origin = operand.value.defining_op if operand.value is not None else None
        if origin is not None:
            origin.discardable = {**origin.discardable, SHARDING: StringAttr(sharding.encode())}

    def clear_sharding(self) -> None:
        """Values added from here on have no sharding of their own."""
        self._sharding = None

    # --- building ----------------------------------------------------------------------------------------------------

    def CreateSubBuilder(self, computation_name: str) -> XlaBuilder:
        """Return a builder for a computation that this one uses; errors are handled as here."""
        return type(self)(computation_name, die_immediately_on_error=self.die_immediately_on_error)

    create_sub_builder = CreateSubBuilder

    def SetReturnValue(self, operand: XlaOp) -> None:
        """The computation returns `operand` instead of the value added last."""
        self.perform("SetReturnValue", lambda _: self._set_return(operand), (), {})

    def _set_return(self, operand: XlaOp) -> None:
        self._return = self.value(operand, "operand")

    def Build(self, root: XlaOp | None = None) -> XlaComputation:
        """Return the computation. Raises BuilderError for errors that were kept, missing parameters, or no ops at
        all."""
        if root is not None:
            self.SetReturnValue(root)
        if self._kept:
            raise BuilderError(self._kept)
        result = self._return or self._last
        numbers = sorted(self._parameters)
        if result is None:
            raise self._error("Build", "the computation has no operations", self._place())
        if numbers != list(range(len(numbers))):
            missing = next(number for number in range(len(numbers)) if number not in self._parameters)
            raise self._error("Build", f"parameter {missing} is missing: there are parameters {numbers}", self._place())
        entries = [self._parameters[number] for number in numbers]
        arguments = [value for value, _, _ in entries]
        finished = Block()
        finished.ops = list(self.block.ops)
        finished.set_arguments(arguments)
        names = tuple(name for _, name, _ in entries)
        shape = ProgramShape(tuple(shape for _, _, shape in entries), Shape.of(result.type), names)
        shardings = tuple(self._parameter_shardings.get(number) for number in numbers)
        return XlaComputation(self._name, finished, result, shape, dict(self.called), shardings)

    build = Build

    def GetShape(self, operand: XlaOp) -> Shape:
        """Return the inferred shape of `operand`. Raises at once: for a value whose operation failed, the errors
        kept."""
        if isinstance(operand, XlaOp) and not operand.is_valid and self._kept:
            raise BuilderError(self._kept)
        return self.perform_now("GetShape", lambda _: Shape.of(self.value(operand, "operand").type))

    get_shape = GetShape

    def GetProgramShape(self, root: XlaOp | None = None) -> ProgramShape:
        return self.Build(root).program_shape()

    get_program_shape = GetProgramShape

    # --- errors ------------------------------------------------------------------------------------------------------

    @property
    def first_error(self) -> Diagnostic | None:
        """The first error that was kept."""
        return self._kept[0] if self._kept else None

    def note(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Keep errors for Build."""
        self._kept.extend(diagnostics)

    def perform(self, name: str, function: Callable[..., R], args: Sequence[object], kwargs: Mapping[str, object]) -> R:
        """Run operation `name`; an error in it gets the operation's name and the caller's place."""
        if self._depth:
            return function(self, *args, **kwargs)
        if any(not operand.is_valid for operand in _operands([*args, *kwargs.values()])):
            return self._nothing()  # type: ignore[no-any-return]
        if self._location is UNKNOWN:
            with self.at(self._place()):
                return self.perform(name, function, args, kwargs)
        length = len(self.block.ops)
        self._depth += 1
        try:
            return self._note_result(function(self, *args, **kwargs))
        except (ArgumentError, InferenceError, ValueError, OverflowError) as error:
            del self.block.ops[length:]
            wrong = self._error(name, str(error), self._location)
            if self.die_immediately_on_error:
                raise wrong from None
            self.note(wrong.diagnostics)
            return self._nothing()  # type: ignore[no-any-return]
        finally:
            self._depth -= 1

    def perform_now(self, name: str, function: Callable[[XlaBuilder], R]) -> R:
        """Return `perform` for what gives no value of the computation: its error is raised at once."""
        kept, self.die_immediately_on_error = self.die_immediately_on_error, True
        try:
            return self.perform(name, function, (), {})
        finally:
            self.die_immediately_on_error = kept

    def _nothing(self) -> Any:
        """What an operation that failed returns where errors are kept: an XlaOp, whatever it was to return."""
        return XlaOp(self, None)

    def _note_result(self, result: R) -> R:
        if isinstance(result, XlaOp):
            self._last = result.value
            if self._sharding is not None:
                self.mark(result, self._sharding)
        return result

    def _error(self, name: str, message: str, location: Location) -> BuilderError:
        return BuilderError(Diagnostic(location, message, name))

    def _place(self) -> Location:
        """Return the place that `at` gave, else the caller's."""
        return self._caller() if self._location is UNKNOWN else self._location

    def _caller(self) -> Location:
        """Return the innermost Python line outside of the builder."""
        frame = sys._getframe(1)
        while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            frame = frame.f_back
        return PythonLocation(frame.f_code.co_filename, frame.f_lineno)

    @contextmanager
    def at(self, location: Location) -> Iterator[None]:
        """Ops added inside come from `location`."""
        before, self._location = self._location, location
        try:
            yield
        finally:
            self._location = before

    # --- what operations are made of ---------------------------------------------------------------------------------

    def parameter(self, number: int, shape: Shape, name: str) -> XlaOp:
        """Return a parameter; ArgumentError when the number is taken or negative."""
        if number < 0:
            raise ArgumentError("parameter_number", f"{number} is negative")
        if number in self._parameters:
            raise ArgumentError("parameter_number", f"parameter {number} is there already")
        value = NumberedValue(shape.ir_type, self.block, number, name or None)
        self._parameters[number] = (value, name or f"p{number}", shape)
        if self._sharding is not None:
            self._parameter_shardings[number] = self._sharding
        return XlaOp(self, value)

    def value(self, operand: object, argument: str) -> Value:
        """Return the value of an operand; ArgumentError when it is none of this builder's."""
        if not isinstance(operand, XlaOp):
            raise ArgumentError(argument, f"an XlaOp is needed, got {type(operand).__name__}")
        if operand.builder is not self:
            raise ArgumentError(argument, f"belongs to builder {operand.builder.name()!r}, not to {self._name!r}")
        if operand.value is None:
            raise ArgumentError(argument, "the operation that should give it failed")
        return operand.value

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        attributes: dict[str, AttributeValue] | None = None,
        types: Sequence[t.Type] | None = None,
        regions: Sequence[Region] = (),
        *,
        element: t.Type | None = None,
    ) -> tuple[Value, ...]:
        """Add an op, checked against its declaration; result types are inferred unless given.

        On bounded dimensions it is checked as if these were as large as they can be.
        `element` is the element type of the results where the declaration leaves the choice.
        """
        definition = OPS[name]
        op = Op(name, operands, types or (), attributes, regions, definition=definition, location=self._location)
        for _, declared, type in mistyped(op, definition, "operand"):
            raise ArgumentError(declared.name, f"must be {declared.types.text}, got {_text(type)}")
        _refuse(attribute_faults(op, definition))
        takes = takes_bounded(op)
        full = at_bounds(op) if takes else op
        _refuse(constraint_faults(full, definition, on_results=False, advisory=True))
        if types is None:
            full = full.clone(full.operands, _inferred(full, definition, element))
        _refuse(constraint_faults(full, definition, on_results=True, advisory=True))
        made = op.clone(operands, bounded_results(op, full)) if takes else full
        self.block.ops.append(made)
        return made.results

    def emit_one(
        self,
        name: str,
        operands: Sequence[Value],
        attributes: dict[str, AttributeValue] | None = None,
        type: t.Type | None = None,
        regions: Sequence[Region] = (),
        *,
        element: t.Type | None = None,
    ) -> XlaOp:
        """Return `emit` for an op with one result."""
        types = None if type is None else [type]
        (value,) = self.emit(name, operands, attributes, types, regions, element=element)
        return XlaOp(self, value)

    def constant(self, array: Array) -> Value:
        """Return a constant; a broadcast view of one element stays one."""
        kind = t.tensor_of(array)
        (value,) = self.emit("stablehlo.constant", [], {"value": DenseAttr(array, kind)}, [kind])
        return value

    def tuple(self, values: Sequence[Value]) -> XlaOp:
        kind = t.TupleType(tuple(value.type for value in values))
        return XlaOp(self, make(self.block, "stablehlo.tuple", values, [kind], location=self._location).result)

    def collate(self, values: Sequence[Value]) -> XlaOp:
        """One value as it is, several as a tuple."""
        return XlaOp(self, values[0]) if len(values) == 1 else self.tuple(values)

    def element(self, value: Value, index: int) -> Value:
        return element_of(self.block, value, index, self._location)

    def unpack(self, value: Value) -> list[Value]:
        return unpack(self.block, value, self._location)

    def pack(self, type: t.Type, leaves: Sequence[Value]) -> XlaOp:
        return XlaOp(self, pack(self.block, type, leaves, self._location))

    def use(self, computation: XlaComputation) -> None:
        """Notes that ops of this builder hold the ops of `computation`, hence its calls."""
        self.called.update(computation.called)

    def token(self) -> Value:
        """Return the token of the last side effect of this computation; a new one when there was none."""
        if self._token is None:
            (self._token,) = self.emit("stablehlo.after_all", [], None, [t.TOKEN])
        return self._token

    def set_token(self, token: Value) -> None:
        self._token = token

    def is_constant(self, operand: XlaOp) -> bool:
        """Return whether `operand` depends on no parameter, random number, stream or process."""
        return is_constant(self.value(operand, "operand"))

    IsConstant = is_constant

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}: {len(self.block.ops)} ops>"


def _operands(values: Sequence[object]) -> Iterator[XlaOp]:
    for value in values:
        if isinstance(value, XlaOp):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _operands(value)


def _refuse(faults: Iterator[Fault]) -> None:
    """Raise the first of `faults`, if there is one."""
    for label, message in faults:
        raise InferenceError(f"({label}) {message}" if label else message, label)


def _inferred(op: Op, definition: OpDef, element: t.Type | None) -> list[t.Type]:
    """Result types by the declaration's rule; the operand's where a declaration says no more than that."""
    if definition.rule is not None:
        types = definition.rule(op)
        return types if element is None else [_with_element(type, element) for type in types]
    if Trait.SAME_TYPE in definition.traits and len(definition.results) == 1:
        return [op.operands[0].type]
    raise ValueError(f"{op.name} needs result types")


def _with_element(type: t.Type, element: t.Type) -> t.Type:
    assert isinstance(type, t.TensorType)
    return type.with_element_type(element)


def _text(type: t.Type) -> str:
    try:
        return Shape.of(type).brief
    except ValueError:
        return str(type)
