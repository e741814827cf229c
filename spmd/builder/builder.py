"""XlaBuilder, which builds a computation op by op.

Source: the XlaBuilder operation semantics; for deferred errors, sub-builders and the return value, ComputationBuilder
in the TensorFlow compiler framework document.
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
#: Packages whose frames are skipped when the caller's line is looked up.
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

    An error in a call is raised at once. With `die_immediately_on_error=False` it is recorded, the call returns a value
    without a shape, and Build raises all recorded errors.
    """

    def __init__(
        self,
        name: object = "computation",
        computation_name: str | None = None,
        *,
        die_immediately_on_error: bool = True,
    ) -> None:
        """Make a builder: `XlaBuilder("axpy")` or, as in some of the document's examples, `XlaBuilder(client, "axpy")`.

        A client given here is ignored: the computation is run by the client that compiles it.
        """
        self._name = _computation_name(name, computation_name)
        self.block = Block()
        self.called: dict[str, XlaComputation] = {}
        self.die_immediately_on_error = die_immediately_on_error
        self._parameters: dict[int, tuple[Value, str, Shape]] = {}
        self._recorded: list[Diagnostic] = []
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
        """Set whether errors are raised by the call that makes them (the default) or recorded until Build."""
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
        """Annotate the values added from here on with the GSPMD sharding `sharding` (`{devices=[2,1]<=[2]}`)."""
        self._sharding = sharding

    def mark(self, operand: XlaOp, sharding: str) -> None:
        """Annotate `operand` alone with `sharding`; parameters can be annotated by set_sharding only."""
        origin = operand.value.defining_op if operand.value is not None else None
        if origin is not None:
            origin.discardable = {**origin.discardable, SHARDING: StringAttr(sharding.encode())}

    def clear_sharding(self) -> None:
        """Leave values added from here on without an annotation."""
        self._sharding = None

    # --- building ----------------------------------------------------------------------------------------------------

    def CreateSubBuilder(self, computation_name: str) -> XlaBuilder:
        """Return a builder for a computation called by this one; errors are handled as here."""
        return type(self)(computation_name, die_immediately_on_error=self.die_immediately_on_error)

    create_sub_builder = CreateSubBuilder

    def SetReturnValue(self, operand: XlaOp) -> None:
        """Make `operand` the computation's result, in place of the value added last."""
        self.perform("SetReturnValue", lambda _: self._set_return(operand), (), {})

    def _set_return(self, operand: XlaOp) -> None:
        self._return = self.value(operand, "operand")

    def Build(self, root: XlaOp | None = None) -> XlaComputation:
        """Return the computation. Raise BuilderError for recorded errors, missing parameters, or a computation without
        ops."""
        if root is not None:
            self.SetReturnValue(root)
        if self._recorded:
            raise BuilderError(self._recorded)
        result = self._return or self._last
        numbers = sorted(self._parameters)
        if result is None:
            raise self._error("Build", "the computation has no operations", self._current_location())
        if numbers != list(range(len(numbers))):
            missing = next(number for number in range(len(numbers)) if number not in self._parameters)
            raise self._error(
                "Build", f"parameter {missing} is missing: there are parameters {numbers}", self._current_location()
            )
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
        """Return the inferred shape of `operand`. Raise at once: for a value whose operation failed, the recorded
        errors."""
        if isinstance(operand, XlaOp) and not operand.is_valid and self._recorded:
            raise BuilderError(self._recorded)
        return self.perform_now("GetShape", lambda _: Shape.of(self.value(operand, "operand").type))

    get_shape = GetShape

    def GetProgramShape(self, root: XlaOp | None = None) -> ProgramShape:
        return self.Build(root).program_shape()

    get_program_shape = GetProgramShape

    # --- errors ------------------------------------------------------------------------------------------------------

    @property
    def first_error(self) -> Diagnostic | None:
        """Return the first recorded error, if any."""
        return self._recorded[0] if self._recorded else None

    def record(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Record errors for Build."""
        self._recorded.extend(diagnostics)

    def perform(self, name: str, function: Callable[..., R], args: Sequence[object], kwargs: Mapping[str, object]) -> R:
        """Run operation `name`; add its name and the caller's location to its errors."""
        if self._depth:
            return function(self, *args, **kwargs)
        if any(not operand.is_valid for operand in _operands([*args, *kwargs.values()])):
            return self._invalid_result()  # type: ignore[no-any-return]
        if self._location is UNKNOWN:
            with self.at(self._current_location()):
                return self.perform(name, function, args, kwargs)
        length = len(self.block.ops)
        self._depth += 1
        try:
            return self._record_result(function(self, *args, **kwargs))
        except (ArgumentError, InferenceError, ValueError, OverflowError) as error:
            del self.block.ops[length:]
            wrong = self._error(name, str(error), self._location)
            if self.die_immediately_on_error:
                raise wrong from None
            self.record(wrong.diagnostics)
            return self._invalid_result()  # type: ignore[no-any-return]
        finally:
            self._depth -= 1

    def perform_now(self, name: str, function: Callable[[XlaBuilder], R]) -> R:
        """Run operation `name`, which returns no value of the computation; its error is raised at once."""
        kept, self.die_immediately_on_error = self.die_immediately_on_error, True
        try:
            return self.perform(name, function, (), {})
        finally:
            self.die_immediately_on_error = kept

    def _invalid_result(self) -> Any:
        """Return the result of a failed operation while errors are recorded: an invalid XlaOp."""
        return XlaOp(self, None)

    def _record_result(self, result: R) -> R:
        if isinstance(result, XlaOp):
            self._last = result.value
            if self._sharding is not None:
                self.mark(result, self._sharding)
        return result

    def _error(self, name: str, message: str, location: Location) -> BuilderError:
        return BuilderError(Diagnostic(location, message, name))

    def _current_location(self) -> Location:
        """Return the location set by `at`, else the caller's."""
        return self._caller() if self._location is UNKNOWN else self._location

    def _caller(self) -> Location:
        """Return the innermost Python line outside the builder."""
        frame = sys._getframe(1)
        while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            frame = frame.f_back
        return PythonLocation(frame.f_code.co_filename, frame.f_lineno)

    @contextmanager
    def at(self, location: Location) -> Iterator[None]:
        """Give the ops added inside the location `location`."""
        before, self._location = self._location, location
        try:
            yield
        finally:
            self._location = before

    # --- primitives for operations ------------------------------------------------------------------------------------

    def parameter(self, number: int, shape: Shape, name: str) -> XlaOp:
        """Return a parameter; raise ArgumentError if the number is taken or negative."""
        if number < 0:
            raise ArgumentError("parameter_number", f"must not be negative, got {number}")
        if number in self._parameters:
            raise ArgumentError("parameter_number", f"parameter {number} is defined twice")
        value = NumberedValue(shape.ir_type, self.block, number, name or None)
        self._parameters[number] = (value, name or f"p{number}", shape)
        if self._sharding is not None:
            self._parameter_shardings[number] = self._sharding
        return XlaOp(self, value)

    def value(self, operand: object, argument: str) -> Value:
        """Return the value of an operand; raise ArgumentError if it belongs to another builder."""
        if not isinstance(operand, XlaOp):
            raise ArgumentError(argument, f"must be an XlaOp, got {type(operand).__name__}")
        if operand.builder is not self:
            raise ArgumentError(
                argument, f"must belong to builder {self._name!r}, got one of {operand.builder.name()!r}"
            )
        if operand.value is None:
            raise ArgumentError(argument, "the operation that defines it failed")
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
        """Add an op, verified against its declaration; infer result types unless given.

        Bounded dimensions are verified as if static, at their bounds.
        `element` is the element type of the results if the declaration leaves it open.
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
        """Return a constant; a broadcast view of one element stays a splat."""
        kind = t.tensor_of(array)
        (value,) = self.emit("stablehlo.constant", [], {"value": DenseAttr(array, kind)}, [kind])
        return value

    def tuple(self, values: Sequence[Value]) -> XlaOp:
        kind = t.TupleType(tuple(value.type for value in values))
        return XlaOp(self, make(self.block, "stablehlo.tuple", values, [kind], location=self._location).result)

    def collate(self, values: Sequence[Value]) -> XlaOp:
        """Return a single value as it is, several as a tuple."""
        return XlaOp(self, values[0]) if len(values) == 1 else self.tuple(values)

    def element(self, value: Value, index: int) -> Value:
        return element_of(self.block, value, index, self._location)

    def unpack(self, value: Value) -> list[Value]:
        return unpack(self.block, value, self._location)

    def pack(self, type: t.Type, leaves: Sequence[Value]) -> XlaOp:
        return XlaOp(self, pack(self.block, type, leaves, self._location))

    def use(self, computation: XlaComputation) -> None:
        """Record that ops of this builder contain the ops of `computation`, and so its calls."""
        self.called.update(computation.called)

    def token(self) -> Value:
        """Return the token of the computation's last side effect, or a new one."""
        if self._token is None:
            (self._token,) = self.emit("stablehlo.after_all", [], None, [t.TOKEN])
        return self._token

    def set_token(self, token: Value) -> None:
        self._token = token

    def is_constant(self, operand: XlaOp) -> bool:
        """Return whether `operand` can be evaluated at compile time (see constants.is_constant)."""
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
    """Return the result types inferred by the declaration, or the operand's type if it only constrains them."""
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
