"""Pickle and copy modules: a module is sent as its text in the generic form and the source locations of its ops.

Ops refer to each other in chains as long as a program, which Python's own copying would follow recursively.
"""

from __future__ import annotations

import copyreg
from typing import Any

from spmd.errors import Location
from spmd.ir import Module
from spmd.syntax.parser import parse
from spmd.syntax.printer import print_op

#: For each op, in the order of `walk`: its location, and the names of its results.
_ArrayPlaces = list[tuple[Location, list[str | None]]]


def _reduce(module: Module) -> tuple[Any, ...]:
    places = [(op.location, [result.name_hint for result in op.results]) for op in module.walk()]
    return _restore, (print_op(module, generic=True, keep_names=True, debug_info=True), places)


def _restore(text: str, places: _ArrayPlaces) -> Module:
    module = parse(text)
    for op, (location, names) in zip(module.walk(), places, strict=True):
        op.move(location)
        for result, name in zip(op.results, names, strict=True):
            if name is not None:
                result.name_hint = name
    return module


copyreg.pickle(Module, _reduce)
