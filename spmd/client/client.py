"""The client of XLA's first edition: transfers data, compiles and runs computations.

Source: TensorFlow compiler framework document, "Getting started", "Moving data into and out of XLA", "Layout".
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from collectives.grid import ProcessGrid
from spmd.backends.custom_calls import register_custom_call
from spmd.builder.computation import XlaComputation
from spmd.builder.layout import Layout
from spmd.builder.literal import Literal
from spmd.builder.shape import Shape
from spmd.errors import ExecutionError
from spmd.ir import AttributeValue
from spmd.runtime.compile import compile
from spmd.runtime.executable import Executable
from spmd.support.arrays import Argument, Array, Nested

#: The custom call target that implements Trace.
TRACE = "spmd.trace"


class GlobalData:
    """A value on the server: an array, or a tuple of values."""

    def __init__(self, value: Nested) -> None:
        self._value = value

    def value(self) -> Nested:
        """Return the array, or a tuple of arrays, without a copy."""
        return self._value

    def shape(self) -> Shape:
        return _shape_of(self._value)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self._value, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"<GlobalData {self.shape().brief}>"


def _shape_of(value: Nested) -> Shape:
    if isinstance(value, tuple):
        return Shape.tuple_shape([_shape_of(part) for part in value])
    return Shape.array_shape(value.dtype, value.shape)


class LoadedComputation:
    """A compiled computation, which can be run many times."""

    def __init__(self, computation: XlaComputation, executable: Executable) -> None:
        self.computation = computation
        self.executable = executable

    def __call__(self, arguments: Sequence[Argument]) -> Nested:
        """Run the computation; return an array, or a (nested) tuple of arrays."""
        results = list(self.executable(*arguments))
        return _nested(self.computation.program_shape().result_shape, results)


def _nested(shape: Shape, leaves: list[Array]) -> Nested:
    """Remove the value of `shape` from the front of `leaves`, and return it."""
    if shape.is_tuple():
        return tuple(_nested(part, leaves) for part in shape.parts)
    return leaves.pop(0)


class Client:
    """Runs computations in this process; under mpirun, as this rank of `grid`.

    Source: Client of the TensorFlow compiler framework document.
    """

    def __init__(self, grid: ProcessGrid | None = None) -> None:
        self.grid = grid
        self._infeed: deque[tuple[Nested, ...]] = deque()
        self._outfeed: deque[tuple[Array, ...]] = deque()

    # --- data --------------------------------------------------------------------------------------------------------

    def TransferToServer(self, literal: object) -> GlobalData:
        """Return a copy of the literal's values on the server."""
        transferred = literal if isinstance(literal, Literal) else Literal(literal)
        return GlobalData(_copied(transferred.value()))

    def TransferInProcess(self, data: object, shape: Shape | None = None) -> GlobalData | Nested:
        """Transfer an array to the server, or a GlobalData's array from it, without a copy where the layout allows.

        With `shape`, `data` is linear memory in the layout of the shape.
        """
        if isinstance(data, GlobalData):
            return data.value()
        if shape is None:
            return GlobalData(np.asarray(data))
        return GlobalData(Literal.from_memory(data, shape).array())

    def Transfer(self, data: GlobalData, shape_with_layout: Shape | None = None) -> Literal:
        """Return the value as a literal, in the layout of `shape_with_layout` if given.

        Raises ExecutionError if the shapes are not compatible.
        """
        literal = Literal(data.value())
        if shape_with_layout is None:
            return literal
        if not shape_with_layout.compatible(literal.shape()):
            raise ExecutionError(
                f"Transfer: the data must have shape {shape_with_layout.brief}, got {literal.shape().brief}"
            )
        return Literal(literal.value(), shape_with_layout)

    def TransferToInfeed(self, literal: object) -> None:
        """Queue an item for the next Infeed: an array or a tuple of arrays."""
        value = (literal if isinstance(literal, Literal) else Literal(literal)).value()
        self._infeed.append(value if isinstance(value, tuple) else (value,))

    def TransferFromOutfeed(self) -> Literal:
        """Return the oldest item written by an Outfeed; ExecutionError if there is none."""
        if not self._outfeed:
            raise ExecutionError("TransferFromOutfeed: nothing was written to the outfeed")
        value = self._outfeed.popleft()
        return Literal(value[0] if len(value) == 1 else value)

    # --- computations ------------------------------------------------------------------------------------------------

    def Compile(self, computation: XlaComputation) -> LoadedComputation:
        """Return the compiled computation, cached per computation."""
        loaded = computation.loaded.get(self)
        if not isinstance(loaded, LoadedComputation):
            loaded = computation.loaded[self] = LoadedComputation(computation, self._executable(computation))
        return loaded

    def _executable(self, computation: XlaComputation) -> Executable:
        register_custom_call(TRACE, _trace)
        executable = compile(computation.to_stablehlo(), self.grid)
        if any(op.name in ("stablehlo.infeed", "stablehlo.outfeed") for op in executable.module.walk()):
            executable.process.infeed = self._next_item
            executable.process.outfeed = self._keep_item
        return executable

    def _next_item(self) -> tuple[Nested, ...]:
        if not self._infeed:
            raise ExecutionError("Infeed: nothing was transferred to the infeed")
        return self._infeed.popleft()

    def _keep_item(self, arrays: tuple[Array, ...]) -> None:
        self._outfeed.append(arrays)

    def Execute(
        self, computation: XlaComputation | LoadedComputation, arguments: Sequence[GlobalData] = ()
    ) -> GlobalData:
        """Run the computation on data of the server, compiling it if needed; ExecutionError for arguments that do not
        fit.
        """
        loaded = computation if isinstance(computation, LoadedComputation) else self.Compile(computation)
        shapes = loaded.computation.program_shape().parameter_shapes
        if len(arguments) != len(shapes):
            raise ExecutionError(f"Execute: {len(shapes)} arguments are needed, got {len(arguments)}")
        for number, (argument, shape) in enumerate(zip(arguments, shapes, strict=True)):
            if not isinstance(argument, GlobalData):
                raise ExecutionError(f"Execute: argument {number} must be a GlobalData, got {type(argument).__name__}")
            if not argument.shape().compatible(shape):
                raise ExecutionError(
                    f"Execute: argument {number} must have shape {shape.brief}, got {argument.shape().brief}"
                )
        return GlobalData(loaded([argument.value() for argument in arguments]))

    def ExecuteAndTransfer(
        self,
        computation: XlaComputation | LoadedComputation,
        arguments: Sequence[GlobalData] = (),
        shape_with_output_layout: Shape | None = None,
    ) -> Literal:
        """Execute, and return the result as a literal, in a layout if given."""
        return self.Transfer(self.Execute(computation, arguments), shape_with_output_layout)

    def ComputeConstant(self, computation: XlaComputation, output_layout: Layout | None = None) -> GlobalData:
        """Return the value of a computation without parameters; as linear memory if a layout is given."""
        data = self.Execute(computation)
        if output_layout is None or output_layout.is_default:
            return data
        return GlobalData(output_layout.to_memory(np.asarray(data.value())))


def _copied(value: Nested) -> Nested:
    return tuple(_copied(part) for part in value) if isinstance(value, tuple) else value.copy()


def _trace(*arrays: object, attributes: Mapping[str, AttributeValue]) -> None:
    logging.getLogger(TRACE).info("%s: %s", attributes["backend_config"], arrays[0])


class ClientLibrary:
    """Holder of this Python process's client."""

    _client: Client | None = None

    @classmethod
    def ClientOrDie(cls) -> Client:
        """Return the one client of this Python process."""
        if cls._client is None:
            cls._client = Client()
        return cls._client

    LocalClientOrDie = ClientOrDie
    #: The name in both programs of the first edition's document.
    ClientLibraryOrDie = ClientOrDie
