"""What a compilation may be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral, Real
from typing import Any, TypedDict, get_type_hints

from collectives.grid import ProcessGrid
from spmd.errors import UsageError
from spmd.ir import Op

#: Called around every op when a program is watched: (op, run) must call run() and return what it returns.
Watch = Callable[[Op, Callable[[], Any]], Any]


class CompileOptions(TypedDict, total=False):
    """The keyword arguments of `spmd.compile`, which `spmd.run_parallel` passes on.

    reproducible       reductions between processes give the same bits on any transport and mapping
    combine_threshold  bytes up to which consecutive small all_reduces travel as one; 0 turns combining off
    check_collectives  processes compare what they are about to do at each collective
    collective_timeout seconds after which a rank that waits tells for whom (None: 60, or $COLLECTIVE_TIMEOUT; 0: never)
    collective_abort   such a wait ends the job
    fuse               run chains of elementwise ops block by block in cache
    watch              called around every op (profiles, NaN checks, printing); turns fusing off
    """

    reproducible: bool
    combine_threshold: int
    check_collectives: bool
    collective_timeout: float | None
    collective_abort: bool
    fuse: bool
    watch: Watch | None


@dataclass(frozen=True)
class Options:
    """Choices of one compilation: the process grid the program is for, and the CompileOptions with their defaults."""

    grid: ProcessGrid = field(default_factory=lambda: ProcessGrid(1, 1))
    reproducible: bool = False
    combine_threshold: int = 256 << 10
    check_collectives: bool = False
    collective_timeout: float | None = None
    collective_abort: bool = False
    fuse: bool = True
    watch: Watch | None = None


#: By the declared type of an option: whether a value is one, and what it should be.
_CHECKS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "True or False"),
    int: (lambda value: _is_number(value, Integral), "a whole number, not negative"),
    float | None: (lambda value: value is None or _is_number(value, Real), "a number, not negative, or None"),
    Watch | None: (lambda value: value is None or callable(value), "a function (op, run), or None"),
}


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and bool(value >= 0)  # type: ignore[operator]


@cache
def _declared() -> Mapping[str, Any]:
    return get_type_hints(CompileOptions)


def chosen_options(grid: ProcessGrid, options: Mapping[str, Any]) -> Options:
    """The options that a caller gave, checked. UsageError for a name that is none, or a value that it cannot have."""
    for name, value in options.items():
        if name not in _declared():
            raise UsageError(f"there is no option {name!r}; those of spmd.compile are {', '.join(_declared())}")
        is_one, wanted = _CHECKS[_declared()[name]]
        if not is_one(value):
            raise UsageError(f"option {name} is {wanted}, got {value!r}")
    return Options(grid=grid, **options)
