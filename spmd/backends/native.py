"""The protocol of back ends that compile regions of a schedule, and their table.

The compiler uses this module only: nothing outside of spmd.backends imports the internals of a back end. To add one,
write a module with a `BACKEND` and add a line to the table. A back end's libraries are loaded on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from spmd.support.processor import Processor

if TYPE_CHECKING:
    from spmd.compiler.schedule.schedule import NativeRegion
    from spmd.compiler.schedule.target import Target
    from spmd.compiler.schedule.watching import Clock
    from spmd.ir import Block, Op, Value
    from spmd.support.arrays import Array, Results


@dataclass(frozen=True, slots=True)
class Callback:
    """An op that Python runs: `program` takes the process and arrays of `inputs`, and returns those of `outputs`.

    `keeps_operands`: it may retain its arguments, whose memory is reused afterwards.
    """

    program: Callable[..., tuple[Array, ...]]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    keeps_operands: bool


#: Makes the callback of an op.
MakeCallback: TypeAlias = "Callable[[Op], Callback]"


class NativeCode(Protocol):
    """A compiled region that can be pickled, for the cache."""

    @property
    def arena(self) -> int:
        """Bytes of scratch memory."""


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """The code of a region, its callbacks by number, and its timers."""

    code: NativeCode
    callbacks: Sequence[Callback] = ()
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class NativeFunction:
    """Machine code in this process, for callers with addresses instead of arrays; it does not need the GIL.

    The function at `address` takes the address of an array of addresses: of its inputs, its results, `arena` bytes of
    scratch memory, and `constants`. Arrays are in C order. `over` maps results to the inputs that they overwrite.
    `may_raise`: it may set an exception instead of computing results. The code lives as long as this object.
    """

    address: int
    over: Mapping[int, int]
    arena: int
    constants: Sequence[Array]
    may_raise: bool
    keep: object


@dataclass(frozen=True, slots=True)
class LoadedRegion:
    """A region's function in this process. `needs_process`: it takes the process before the arrays.

    `is_plain`: it takes and returns arrays, no tokens, and does not call Python. `overwrites` are pairs (output, input)
    of the same array. `function`: the function called, if `call` does nothing else.
    """

    call: Callable[..., Results]
    needs_process: bool
    overwrites: tuple[tuple[int, int], ...]
    is_plain: bool
    function: NativeFunction | None = None


@dataclass(frozen=True)
class ObjectFile:
    """`image` defines a C function that takes the addresses of arguments, results and scratch memory.

    `scratch`: bytes of scratch memory. `needs`: BLAS routines that it calls. `target`: what it was compiled for.
    `c_targets`: custom-call targets that it calls by name.
    """

    image: bytes
    scratch: int
    needs: tuple[str, ...]
    target: str
    c_targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class FunctionSource:
    """A function as source text: `text` takes the declarations of its parameters; it needs `scratch` bytes."""

    text: Callable[[Sequence[str]], str]
    scratch: int


class NativeBackend(Protocol):
    """A back end that compiles regions to functions."""

    @property
    def name(self) -> str: ...

    def processor(self, name: str | None = None) -> Processor:
        """Return the processor `name`, or the default target of this process.

        UsageError if its code does not run here.
        """

    def agree_on(self, processor: Processor) -> None:
        """Set the default target of this process to `processor`."""

    def target(self, threads: int, processor: Processor, *, in_fixed_order: bool = False) -> Target:
        """Return the schedule's view of code for `processor`, run by up to `threads`.

        `in_fixed_order`: sums have one order on every processor.
        """

    def compile(self, region: NativeRegion, make_callback: MakeCallback, *, clocked: bool) -> CompiledRegion:
        """Return compiled `region`; `make_callback` makes its callbacks. `clocked`: it times its steps."""

    def load(self, compiled: CompiledRegion) -> LoadedRegion:
        """Return the function of `compiled`, loaded into this process."""

    def object_file(self, block: Block, name: str, processor: str | None) -> ObjectFile:
        """Return `block` as function `name` of an object file for `processor` (None: this process's).

        CompileError for ops that only Python runs.
        """

    def made_by(self, processor: Processor) -> str:
        """Return a key of what code for `processor` depends on besides the schedule: versions, and the processor."""


class SourceBackend(NativeBackend, Protocol):
    """A back end that emits readable source code."""

    def source(self, block: Block, name: str) -> FunctionSource:
        """Return `block` as source of function `name`. CompileError for unsupported ops."""


#: The back end that runs all ops one by one.
NUMPY = "numpy"
#: Modules of back ends that compile regions, by name.
_MODULES = {"llvm": "spmd.backends.llvm.backend", "c": "spmd.backends.c.backend"}
#: All back ends, and the default ones by preference.
BACKENDS = (*_MODULES, NUMPY)
DEFAULT = ("llvm", NUMPY)
#: Back ends that emit source code.
SOURCES = ("c",)


def native_backend(names: Sequence[str]) -> NativeBackend | None:
    """Return the preferred back end of `names` if it compiles regions; None if it is NumPy's, which runs everything."""
    return None if names[0] == NUMPY else cast(NativeBackend, cast(Any, import_module(_MODULES[names[0]])).BACKEND)


def source_backend(name: str) -> SourceBackend:
    """Return the back end `name`, one of SOURCES."""
    assert name in SOURCES, name
    return cast(SourceBackend, native_backend([name]))
