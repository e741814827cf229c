"""Programs of one op each, compiled as one: to begin with a compilation takes longer than an op does.

A test of many cases yields its program, and is sent what the program gives::

    @pytest.mark.parametrize("size", [2, 3, 5])
    @together
    def test_negation(size: int) -> Cases:
        x = np.arange(size, dtype=np.float32)
        (got,) = yield Program(op('"stablehlo.negate"(%0)', [x], ("f32", (size,))), [x])
        np.testing.assert_array_equal(got, -x)

What the cases that were selected yield first becomes one program, which runs once: each case is a function of its own
arguments, which share nothing with those of others, and is scheduled as it is alone
(tests/backends/test_together.py). What a case yields later, or what is not compiled with the others, is compiled alone.

`drawn` makes such a case of all examples that hypothesis draws for one::

    @pytest.mark.parametrize("name", ["negate", "abs"])
    @together
    @drawn(examples(20), size=st.integers(1, 9))
    def test_signs(name: str, size: int) -> Cases:
        ...
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import spmd
from spmd.dialects.make import make_function, make_op
from spmd.ir import Block, Function, Value
from spmd.types import Type

#: At most so many programs are one: for long functions LLVM takes longer than in proportion.
MOST = 16
_HEAD = "func.func @main("
Results = list[np.ndarray]


@dataclass(frozen=True)
class Program:
    """The text of a function @main, arguments for it, options of spmd.compile, what holds while it is compiled (a
    function that makes a context), and the attributes of its module. With `processes`, so many replicas of it are
    simulated: the arguments are stacked, and so are the results."""

    text: str
    arrays: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    under: Callable[[], AbstractContextManager[Any]] = nullcontext
    processes: int | None = None
    attributes: str = ""

    def run(self) -> Results:
        """What the program gives, compiled alone."""
        (results,) = _compiled([self])([self])
        return results


#: A test: yields a program or several, and is sent the results of it or of each.
Cases = Generator[Program | Sequence[Program], Any, None]


def for_numpy(text: str, *arrays: Any) -> Program:
    """A program for the back end of plain NumPy: the bits that only it promises."""
    return Program(text, arrays, {"backends": ("numpy",)})


def run_all(programs: Iterable[Program]) -> list[Results]:
    """What each program gives; those compiled alike are compiled together, and those of the same text once."""
    programs = list(programs)
    results: list[Results] = [[] for _ in programs]
    for batch in _batches(programs):
        for turn in range(max(map(len, batch))):
            chosen = [programs[numbers[min(turn, len(numbers) - 1)]] for numbers in batch]
            if turn == 0:
                run = _compiled(chosen)
            for numbers, own in zip(batch, run(chosen), strict=True):
                if turn < len(numbers):
                    results[numbers[turn]] = own
    return results


def _batches(programs: Sequence[Program]) -> Iterator[list[list[int]]]:
    """What is compiled together: for each text the numbers of the programs that have it."""
    alike: dict[Hashable, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, program in enumerate(programs):
        if program.text.lstrip().startswith(_HEAD):
            way = repr(sorted(program.options.items())), program.under, program.processes, program.attributes
            alike[way][program.text].append(number)
        else:
            yield [[number]]
    for texts in alike.values():
        numbers = [*texts.values()]
        yield from (numbers[begin : begin + MOST] for begin in range(0, len(numbers), MOST))


def _compiled(programs: Sequence[Program]) -> Callable[[Sequence[Program]], list[Results]]:
    """What runs programs of the texts of these, with their own arguments."""
    first = programs[0]
    if len(programs) == 1:
        module = _parsed(first.text, first.attributes)
        counts = [len(module.function("main").type.results)]
    else:
        module = joined([program.text for program in programs], first.attributes)
        counts = [len(function.type.results) for function in module.functions[:-1]]
    executable: Callable[..., Sequence[Any]]
    with first.under():
        if first.processes is None:
            executable = spmd.compile(module, **first.options)
        else:
            grid = spmd.ProcessGrid(num_replicas=first.processes, num_partitions=1)
            executable = spmd.simulate(module, grid, **first.options)

    def run(several: Sequence[Program]) -> list[Results]:
        with np.errstate(all="ignore"):
            found = iter(executable(*(array for program in several for array in program.arrays)))
        return [[np.asarray(next(found)) for _ in range(count)] for count in counts]

    return run


def _parsed(text: str, attributes: str) -> spmd.Module:
    return spmd.parse(f"module attributes {{{attributes}}} {{\n{text}\n}}" if attributes else text)


def joined(texts: Sequence[str], attributes: str = "") -> spmd.Module:
    """The module of a function for each text, and of @main, which takes their arguments and returns their results."""
    named = [text.replace(_HEAD, f"func.func @case{number}(", 1) for number, text in enumerate(texts)]
    module = _parsed("\n".join(named), attributes)
    return module.with_ops([*module.body.ops, _calling(module.functions)])


def _calling(functions: Sequence[Function]) -> Function:
    body = Block([type for function in functions for type in function.type.inputs])
    arguments = iter(body.arguments)
    returned: list[Value] = []
    for function in functions:
        own: list[Value] = [next(arguments) for _ in function.type.inputs]
        types: Sequence[Type] = function.type.results
        call = make_op("func.call", own, types, {"callee": function.symbol})
        body.ops.append(call)
        returned += call.results
    body.ops.append(make_op("func.return", returned))
    main = make_function("main", body)
    return main.with_body(main.body, {**main.attributes, "sym_visibility": "public"})


# --- tests that yield ---------------------------------------------------------------------------------------------


@dataclass
class _Begun:
    """A case that has yielded its first programs, and what these gave: [] where they have not run."""

    case: Cases
    programs: Program | Sequence[Program]
    results: list[Results] = field(default_factory=list)

    @property
    def several(self) -> Sequence[Program]:
        return [self.programs] if isinstance(self.programs, Program) else self.programs

    def finish(self) -> None:
        """Goes on to the end of the case; what it yields on the way is compiled alone."""
        while True:
            results = self.results or [program.run() for program in self.several]
            try:
                self.programs = self.case.send(results[0] if isinstance(self.programs, Program) else results)
            except StopIteration:
                return
            self.results = []


def _begin(test: Callable[..., Cases], values: Mapping[str, Any]) -> _Begun | None:
    """None of a case that ends before it has a program."""
    case = test(**values)
    programs = next(case, None)
    return None if programs is None else _Begun(case, programs)


def _share(begun: Sequence[_Begun], results: Iterable[Results]) -> None:
    found = iter(results)
    for each in begun:
        each.results = [next(found) for _ in each.several]


def together(test: Callable[..., Cases]) -> Callable[..., None]:
    """Decorator: `test`, a generator that takes the values of its parameters alone, as a test; see above."""
    signature = inspect.signature(test)
    begun: dict[str, _Begun] = {}

    @wraps(test)
    def one(request: pytest.FixtureRequest, **values: Any) -> None:
        if request.node.nodeid not in begun:
            begun.clear()
            begun.update(_begin_all(test, one, request))
        own = begun.pop(request.node.nodeid, None) or _begin(test, values)
        if own is not None:
            own.finish()

    own_parameter = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    one.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own_parameter, *signature.parameters.values()], return_annotation=None
    )
    return one


def _begin_all(
    test: Callable[..., Cases], one: Callable[..., None], request: pytest.FixtureRequest
) -> dict[str, _Begun]:
    """By their ids: the cases of `test` among those that this run selected, with what their programs give.

    A case that raises before it has a program is left out, and what cannot be compiled has no results: each says so
    itself when it is run.
    """
    begun: dict[str, _Begun] = {}
    for item in request.session.items:
        if getattr(item, "function", None) is one and item.path == request.path:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            with suppress(Exception, pytest.skip.Exception):
                if (case := _begin(test, parameters)) is not None:
                    begun[item.nodeid] = case
    with suppress(spmd.SpmdError):
        _share([*begun.values()], run_all(program for each in begun.values() for program in each.several))
    return begun


def drawn(count: int, **strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., Cases]], Callable[..., Cases]]:
    """Decorator for below `together`: a case of `count` examples of what `strategies` draw, all of them compiled
    together. An example that fails is looked for once more, each compiled alone, and made smaller by hypothesis."""

    def decorate(test: Callable[..., Cases]) -> Callable[..., Cases]:
        signature = inspect.signature(test)

        @wraps(test)
        def case(**values: Any) -> Cases:
            begun: list[_Begun] = []

            def begin(**example: Any) -> None:
                if (own := _begin(test, {**values, **example})) is not None:
                    begun.append(own)

            def alone(**example: Any) -> None:
                if (own := _begin(test, {**values, **example})) is not None:
                    own.finish()

            sound = settings(max_examples=count)
            settings(sound, phases=[Phase.generate])(given(**strategies)(begin))()
            results = yield [program for each in begun for program in each.several]
            _share(begun, results)
            for own in begun:
                try:
                    own.finish()
                except Exception as error:
                    sound(given(**strategies)(alone))()
                    error.add_note(f"not when it is compiled alone: {own.several}")
                    raise

        case.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[each for name, each in signature.parameters.items() if name not in strategies]
        )
        return case

    return decorate
