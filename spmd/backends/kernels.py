"""What runs one op: how a kernel is registered, and what its maker is given.

The kernels themselves are in spmd/backends/numpy, loaded when a program first needs one.

A maker runs once, when the program is compiled. It sees the op with all that is static (types, attributes, regions)
and returns the closure that the program calls on arrays:

    @kernel("stablehlo.transpose")
    def transpose(op: Op, context: Context) -> Kernel:
        permutation = op["permutation"]
        return Kernel(lambda operand: operand.transpose(permutation), aliases=(0,))

The closure takes the operand arrays, then the values that the op's regions capture (spmd.ir.captured_values), and
returns one array for one result, a tuple for several, and () for none. A tensor is an array of exactly the tensor
type's dtype and shape (rank 0: a 0-d array or a NumPy scalar), a token None, a tuple a Python tuple, a future what
async_start returned. Makers always see static tensor types, except for a result whose shape depends on values: ops
with dynamic types are specialized to the shapes met while running (compiler/dynamic.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.collectives import CollectiveOptions
from spmd.analysis.memory import too_large
from spmd.errors import CompileError, Diagnostic, SpmdError
from spmd.ir import Function, Module, Op
from spmd.support.arrays import Array, Results
from spmd.support.registry import filed
from spmd.support.signal_handlers import raised_in_handler

#: A pointwise call: `call(*operands, out=None)`.
Call = Callable[..., Array]
#: A compiled region or function: `program(process, *values) -> tuple of results`.
Program = Callable[..., tuple[Array, ...]]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The run-time path of one op, and what the executor may know of it.

    call           closure over arrays
    needs_process  call takes the Process before the arrays (collectives, streams, regions that may hold them)
    accepts_out    call takes `out=`, an array of the (only) result's dtype and shape to write the result into
    reuses         operands whose own buffer may serve as `out` when they are dead (call(x, y, out=x) is sound)
    aliases        operands with which a result may share memory (views); empty: results are fresh arrays
    pointwise      call acts element by element on arrays of any shapes that broadcast together (and accepts_out):
                   it may be run piece by piece, and a region of such ops on whole slabs
    overwrites     pairs (result, operand): the result is the operand's own array, written over
    is_native      call takes and gives plain arrays, and no NumPy computes in it
    owned          False when a result may be memory that somebody else keeps (custom calls): never reused in place
    """

    call: Callable[..., Any]
    needs_process: bool = False
    accepts_out: bool = False
    reuses: tuple[int, ...] = ()
    aliases: tuple[int, ...] = ()
    pointwise: bool = False
    overwrites: tuple[tuple[int, int], ...] = ()
    is_native: bool = False
    owned: bool = True

    def run(self, process: object, *values: object) -> Any:
        """Run the op on `values`, passing `process` if needed."""
        return self.call(process, *values) if self.needs_process else self.call(*values)


class KernelOptions(CollectiveOptions, Protocol):
    """The options of a compilation that makers read (spmd.compiler.pipeline.options)."""

    @property
    def check_collectives(self) -> bool: ...


class Context(Protocol):
    """The interface of the compiler to makers."""

    @property
    def module(self) -> Module:
        """The module being compiled."""

    @property
    def options(self) -> KernelOptions:
        """Options of the compilation."""

    def region(self, op: Op, index: int) -> Program:
        """Return region `index` of `op`, compiled: its program takes (process, *block
        arguments, *captured_values(op)).
        """

    def loop_body(self, op: Op, index: int) -> tuple[Program, tuple[int, ...]]:
        """Return region `index` of `op` compiled as a loop body, and the carried positions whose arrays it overwrites.

        The loop must own those arrays: it copies the initial ones.
        """

    def function(self, symbol: str, op: Op) -> Program:
        """Return the program of function `symbol`: (process, *arguments). CompileError at `op` if it has no body."""

    def lookup(self, symbol: str, op: Op) -> Function:
        """Return the function `symbol`; CompileError at `op` if it has no body."""

    def on_grid(self, grid: ProcessGrid) -> Context:
        """Return a context of the same module for the processes of another grid."""

    def vectorized(self, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
        """Return region `index` of `op`, on scalars, as a function on whole arrays.

        It takes one array per block argument (of shapes that broadcast), then the captured values, and returns a tuple
        of arrays of the broadcast shape: the region applied to every element.
        """


Maker = Callable[[Op, Context], "Kernel | Callable[..., Results]"]

#: Ops whose results are views of existing memory, and may be of any size.
_VIEWS = frozenset(
    (
        *("stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.broadcast", "stablehlo.reshape"),
        *("stablehlo.transpose", "stablehlo.optimization_barrier", "stablehlo.tuple", "stablehlo.get_tuple_element"),
    )
)

#: The package that registers a kernel for every op.
_KERNELS_OF = "spmd.backends.numpy"

#: Makers by op name.
KERNELS: dict[str, Maker] = {}
#: Makers of custom calls by target name.
TARGETS: dict[str, Maker] = {}

#: Makers called before an op's own; each returns None for ops that it does not handle.
WRAPPERS: list[Callable[[Op, Context], Kernel | None]] = []


def kernel(*names: str) -> Callable[[Maker], Maker]:
    """Register a maker under the names of ops; return a decorator."""
    return filed(KERNELS, names, "kernel")


@cache
def load_kernels() -> None:
    """Import the modules that register kernels and custom-call targets."""
    import_module(_KERNELS_OF)


def make_kernel(op: Op, context: Context) -> Kernel:
    """Return the kernel of `op`; CompileError for an op without one."""
    load_kernels()
    for wrapper in WRAPPERS:
        wrapped = wrapper(op, context)
        if wrapped is not None:
            return wrapped
    maker = KERNELS.get(op.name)
    if maker is None:
        raise CompileError(Diagnostic(op.location, "no kernel runs this op", op.name))
    if op.name not in _VIEWS and (fault := too_large(op.result_types)) is not None:
        raise CompileError(Diagnostic(op.location, fault, op.name))
    try:
        with np.errstate(all="ignore"):  # makers may compute with NaN and infinity
            product = maker(op, context)
    except (SpmdError, RecursionError):
        raise
    except Exception as error:  # a valid op that its maker cannot handle
        if raised_in_handler(error):
            raise
        text = f"cannot be compiled: {type(error).__name__}: {error}"
        raise CompileError(Diagnostic(op.location, text, op.name)) from error
    return product if isinstance(product, Kernel) else Kernel(product)
