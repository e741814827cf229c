"""`spmd.compile`: the compiler, for modules and for whatever a module can be made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from spmd.io.objects import program_in
from spmd.io.reading import parse
from spmd.ir import Module
from spmd.runtime.compile import compile as _compile

P = ParamSpec("P")
R = TypeVar("R")


def _of_programs(function: Callable[Concatenate[Module, P], R]) -> Callable[Concatenate[object, P], R]:
    """`function`, which takes a module, for objects that hold a program, too."""

    @wraps(function)
    def taking(module: object, *args: P.args, **kwargs: P.kwargs) -> R:
        if not isinstance(module, Module | str | bytes):
            program = program_in(module)
            module = module if program is None else parse(program)
        return function(cast(Module, module), *args, **kwargs)  # which refuses what is none

    return cast(Callable[Concatenate[object, P], R], taking)


compile = _of_programs(_compile)
