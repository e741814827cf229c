"""Where the ops of functions come from in a program whose calls were inlined before it is shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from spmd.dialects.calls import CALLS
from spmd.ir import Function, Module, Op
from spmd.viewing.places import LocationTable, names_in

#: The scopes around an op, outermost first: name, and a number that tells calls of one function apart, or -1.
Scopes = tuple[tuple[str, int], ...]
#: The largest number of ops of functions whose calls are looked up.
_MOST = 5000


def after(names: Scopes, outer: Scopes) -> Scopes:
    """Return `names` without the names that they begin with in common with `outer`."""
    common = 0
    while common < min(len(names), len(outer)) and names[common] == outer[common]:
        common += 1
    return names[common:]


@dataclass
class Callers:
    """The scopes of the calls by which each op of `module` is reached from `function`, in order.

    Calls of functions in `kept` are not followed: they are calls still.
    """

    module: Module
    function: str
    kept: Collection[str]
    places: LocationTable
    _paths: dict[Hashable, list[Scopes]] = field(default_factory=lambda: defaultdict(list))
    _turns: dict[Hashable, int] = field(default_factory=lambda: defaultdict(int))
    _latest: dict[Hashable, Scopes] = field(default_factory=dict)  # by place, also for ops that partitioning adds
    _calls: int = 0
    _left: int = _MOST

    def __post_init__(self) -> None:
        functions = {each.symbol: each for each in self.module.functions if not each.is_declaration}
        if (entry := functions.pop(self.function, None)) is not None:
            self._walk(entry, functions, ())

    def _walk(self, function: Function, functions: dict[str, Function], path: Scopes) -> None:
        """Note `path` for the ops of `function`; `functions` are those that may be called, so without those around."""
        for op in function.walk():
            callee = functions.get(op[CALLS[op.name]]) if op.name in CALLS else None
            if callee is not None and callee.symbol not in self.kept and self._left > 0:
                self._calls += 1
                around = (*path, *after(self._own(op)[:-1], path), (f"@{callee.symbol}", self._calls))
                others = {symbol: each for symbol, each in functions.items() if each is not callee}
                self._walk(callee, others, around)
            elif path:
                self._left -= 1
                place = self.places.key(op)
                self._paths[op.name, place].append(path)
                self._latest.setdefault(place, path)

    def _own(self, op: Op) -> Scopes:
        return tuple((name, -1) for name in names_in(self.places.debug(op)))

    def names(self, op: Op) -> Scopes:
        """Return the scopes around `op` and its own name; the next call is that of an op from the next call."""
        place = self.places.key(op)
        if (paths := self._paths.get((op.name, place))) is not None:
            turn = self._turns[op.name, place]
            self._turns[op.name, place] += 1
            self._latest[place] = paths[min(turn, len(paths) - 1)]
        path = self._latest.get(place, ())
        return (*path, *after(self._own(op), path))
