"""Options of a compilation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from numbers import Integral, Real
from typing import Any, Literal, TypedDict, get_type_hints

from collectives.grid import ProcessGrid
from spmd.backends.native import BACKENDS, DEFAULT, NativeBackend, native_backend
from spmd.compiler.plan.donation import ATTRIBUTES
from spmd.compiler.schedule.watching import Watch
from spmd.errors import UsageError
from spmd.support.machine import default_threads, ranks_here, usable_cores
from spmd.support.processor import HOST, TARGETS


class CompileOptions(TypedDict, total=False):
    """The keyword arguments of `spmd.compile`, which `spmd.run_parallel` passes on.

    reproducible       reductions between processes give the same bits on any transport and mapping, also if simulated,
                       and matrix products the same on any processor, which rules out BLAS
    combine_threshold  bytes up to which consecutive small all_reduces are combined; 0 disables
    overlap            overlap large all_reduces with computation: True, False, or "auto", if every rank has a spare
                       core; see spmd.compiler.transforms.overlap
    excess_precision   sums and products of floats of at most 16 bits are accumulated in f32 and rounded once (the
                       default): never less accurate, and the same for a reduction, a window, a scatter and a
                       collective of the same elements. Else reductions, windows and scatters round at each step, as
                       the specification's own loops and XLA's CPU client do; collectives never do
    check_collectives  processes compare their arguments at each collective
    mpmd               ranks may run different programs, which are not compared at the first call
    collective_timeout seconds after which a blocked rank reports whom it waits for (None: 60, or $COLLECTIVE_TIMEOUT;
                       0: never)
    collective_abort   abort the job after such a report
    backends           back ends by preference: "llvm" (native code), "numpy" (one kernel per op); names after "numpy"
                       have no effect
    donate             numbers of arguments that may be overwritten, or "attributes": those that the program marks
                       (tf.aliasing_output, jax.buffer_donor); see spmd.compiler.plan.donation.owned_arrays
    threads            threads of native code (None: see spmd.support.machine.default_threads)
    processor          target of native code: "host", or a name such as "x86-64-v3" (None: $SPMD_PROCESSOR, else the
                       best level that all ranks support; see spmd.support.processor)
    watch              called around every unit of the schedule (profiles, NaN checks, printing); see
                       spmd.compiler.schedule.watching
    """

    reproducible: bool
    combine_threshold: int
    overlap: bool | Literal["auto"]
    excess_precision: bool
    check_collectives: bool
    mpmd: bool
    collective_timeout: float | None
    collective_abort: bool
    backends: tuple[str, ...]
    donate: tuple[int, ...] | Literal["attributes"]
    threads: int | None
    processor: str | None
    watch: Watch | None


#: Names of processors.
PROCESSORS = (HOST, *TARGETS)
#: Overlap if ranks have a spare core.
AUTO: Literal["auto"] = "auto"


def default_backends() -> tuple[str, ...]:
    """Return the back ends in $SPMD_BACKENDS (for example "numpy"); by default native code, then NumPy."""
    named = os.environ.get("SPMD_BACKENDS")
    if named:
        chosen = tuple(name.strip() for name in named.split(","))
        if not _are_backends(chosen):
            raise UsageError(f"SPMD_BACKENDS must be back ends among {', '.join(BACKENDS)}, got {named!r}")
        return chosen
    return DEFAULT


def _are_backends(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and set(value) <= set(BACKENDS)


@dataclass(frozen=True)
class Options:
    """The options of one compilation with defaults filled in, and the process grid."""

    grid: ProcessGrid = field(default_factory=lambda: ProcessGrid(1, 1))
    reproducible: bool = False
    combine_threshold: int = 256 << 10
    overlap: bool | Literal["auto"] = AUTO
    excess_precision: bool = True
    check_collectives: bool = False
    mpmd: bool = False
    collective_timeout: float | None = None
    collective_abort: bool = False
    backends: tuple[str, ...] = field(default_factory=default_backends)
    donate: tuple[int, ...] | Literal["attributes"] = ()
    threads: int | None = None
    processor: str | None = None
    watch: Watch | None = None

    @property
    def native(self) -> NativeBackend | None:
        """The back end that compiles native regions; None if Python runs all ops."""
        return native_backend(self.backends)

    @cached_property
    def thread_count(self) -> int:
        """Threads of this process's native code: as given, else its share of the machine's."""
        return self.threads or default_threads(self.grid.size)

    @cached_property
    def overlaps(self) -> bool:
        """Whether large all_reduces overlap with computation."""
        if self.overlap == AUTO:
            return usable_cores() >= ranks_here() * (self.thread_count + 1) > 0
        return bool(self.overlap)


#: By declared type of an option: the check of a value, and what it must be.
_CHECKS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "True or False"),
    int: (lambda value: _is_number(value, Integral), "a non-negative integer"),
    float | None: (lambda value: value is None or _is_number(value, Real), "a non-negative number or None"),
    tuple[str, ...]: (_are_backends, f"a tuple of names among {', '.join(BACKENDS)}"),
    int | None: (
        lambda value: value is None or (_is_number(value, Integral) and value > 0),
        "a positive integer or None",
    ),
    tuple[int, ...] | Literal["attributes"]: (
        lambda value: value == ATTRIBUTES or (isinstance(value, tuple) and all(_is_number(n, Integral) for n in value)),
        "a tuple of argument numbers, or 'attributes'",
    ),
    bool | Literal["auto"]: (lambda value: isinstance(value, bool) or value == AUTO, "True, False or 'auto'"),
    str | None: (
        lambda value: value is None or (isinstance(value, str) and value in PROCESSORS),
        f"one of {', '.join(PROCESSORS)}, or None",
    ),
    Watch | None: (lambda value: value is None or callable(value), "a function (unit, run), or None"),
}


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and bool(value >= 0)  # type: ignore[operator]


@cache
def _declared() -> Mapping[str, Any]:
    return get_type_hints(CompileOptions)


def chosen_options(grid: ProcessGrid, options: Mapping[str, Any]) -> Options:
    """Return the checked options of a caller. UsageError for an unknown name or an invalid value."""
    for name, value in options.items():
        if name not in _declared():
            raise UsageError(f"unknown option {name!r}; options of spmd.compile: {', '.join(_declared())}")
        is_one, expectation = _CHECKS[_declared()[name]]
        if not is_one(value):
            raise UsageError(f"option {name} must be {expectation}, got {value!r}")
    return Options(grid=grid, **options)
