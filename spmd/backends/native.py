"""What a back end that compiles regions of a schedule offers, and the table of those there are.

Who compiles programs reads this module alone: nothing outside of spmd.backends imports the inside of a back end. One is
added by a module that has its `BACKEND`, and a line in the table. A back end's libraries are loaded when it is first
used.
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
    """An op that Python runs: `program` takes the process and arrays of `inputs`, and gives those of `outputs`.

    `keeps_operands`: it may hold on to the arrays that it is given, whose memory is used for other values after.
    """

    program: Callable[..., tuple[Array, ...]]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    keeps_operands: bool


#: Makes the callback of an op.
MakeCallback: TypeAlias = "Callable[[Op], Callback]"


class NativeCode(Protocol):
    """A compiled region as it is kept between runs: it can be pickled."""

    @property
    def arena(self) -> int:
        """Bytes of the memory that it works in."""


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """The code of a region, what Python runs for it, by number, and what times its steps."""

    code: NativeCode
    callbacks: Sequence[Callback] = ()
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class NativeFunction:
    """Machine code in this process, for callers that have addresses in place of arrays; it needs no GIL.

    The function at `address` takes the address of an array of addresses: those of its inputs, of its results, of
    `arena` bytes to work in, and of `constants`. Arrays are in C order. A result in `over` is written over the input of
    that number, at its address. `may_raise`: it may leave an exception behind, in place of results. The code is there
    as long as this object.
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

    `is_plain`: it takes and gives arrays, no tokens, and does not call Python. `overwrites` has pairs (output, input):
    the output is the input's array. `function`: what `call` calls, where that is all it does.
    """

    call: Callable[..., Results]
    needs_process: bool
    overwrites: tuple[tuple[int, int], ...]
    is_plain: bool
    function: NativeFunction | None = None


@dataclass(frozen=True)
class ObjectFile:
    """`image` defines a function of C that takes the addresses of arguments, of results and of memory to work in.

    `scratch`: bytes of that memory. `needs`: routines of BLAS that it calls. `target`: what it was compiled for.
    `c_targets`: targets of custom calls, which it calls as functions of C by these names.
    """

    image: bytes
    scratch: int
    needs: tuple[str, ...]
    target: str
    c_targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A function as text: `text` takes the declarations of its parameters; it works in `scratch` bytes."""

    text: Callable[[Sequence[str]], str]
    scratch: int


class NativeBackend(Protocol):
    """A back end that compiles regions to functions."""

    @property
    def name(self) -> str: ...

    def processor(self, name: str | None = None) -> Processor:
        """What this process's code is made for: the processor called `name`, or what is chosen for all of it.

        UsageError for one whose code does not run here.
        """

    def agree_on(self, processor: Processor) -> None:
        """From now on what is chosen for all code of this process is `processor`."""

    def target(self, threads: int, processor: Processor, *, in_fixed_order: bool = False) -> Target:
        """What its code for `processor` can do in this process, where up to `threads` share the work.

        `in_fixed_order`: sums have one order, whatever the processor.
        """

    def compile(self, region: NativeRegion, make_callback: MakeCallback, *, clocked: bool) -> CompiledRegion:
        """`region` as code; `make_callback` gives what Python runs in it. `clocked`: it times its steps."""

    def load(self, compiled: CompiledRegion) -> LoadedRegion:
        """Return the function of `compiled` in this process."""

    def object_file(self, block: Block, name: str, processor: str | None) -> ObjectFile:
        """`block` as the function `name` of an object file for the processor of that name (None: this process's).

        CompileError for what only Python runs.
        """

    def made_by(self, processor: Processor) -> str:
        """What its code for `processor` depends on beside the schedule: versions, and the processor."""


class SourceBackend(NativeBackend, Protocol):
    """A back end whose code people read, and other compilers."""

    def source(self, block: Block, name: str) -> Source:
        """`block` as the function `name`. CompileError for what it does not write."""


#: What runs all ops, one by one.
NUMPY = "numpy"
#: The modules of back ends that compile regions, by name.
_MODULES = {"llvm": "spmd.backends.llvm.backend", "c": "spmd.backends.c.backend"}
#: The back ends there are, and those that are used where none are named, the preferred one first.
BACKENDS = (*_MODULES, NUMPY)
DEFAULT = ("llvm", NUMPY)
#: Those whose code people read.
SOURCES = ("c",)


def native_backend(names: Sequence[str]) -> NativeBackend | None:
    """Return the back end of `names`, the preferred one first, that compiles regions.

    None where NumPy's comes first, which runs all there is.
    """
    return None if names[0] == NUMPY else cast(NativeBackend, cast(Any, import_module(_MODULES[names[0]])).BACKEND)


def source_backend(name: str) -> SourceBackend:
    """Return the back end called `name`, one of SOURCES."""
    assert name in SOURCES, name
    return cast(SourceBackend, native_backend([name]))
