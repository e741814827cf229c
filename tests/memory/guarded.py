"""Runs programs with all memory that native code is given between pages that must not be touched.

`python -m tests.memory.guarded end|start KIND:BEGIN:COUNT ...`: programs BEGIN to BEGIN + COUNT of each kind; the last
line of a kind is `KIND, sound: COUNT`, and before it stands the name of each program that begins, so that a crash tells
where. A program may end with an SpmdError, and with no other exception.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import spmd
from launch.conformance import Case, entry_point, read_cases
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import Options
from spmd.compiler.pipeline.refine import refine
from spmd.types import TensorType
from tests.backends import bit_programs
from tests.backends.llvm.drawn import drawn_program
from tests.memory.guards import Guards
from tests.memory.programs import indexing_program, with_arguments, with_constant, with_wrong_sizes

FOLDER = Path(__file__).parents[2].parent / "shared" / "conformance"
#: A module, the name of its function, and arguments; None of a program that runs nothing, or has no arguments.
Made = tuple[spmd.Module, str, list[np.ndarray]] | None
#: A program's name, and what makes it.
Program = tuple[str, Callable[[], Made]]


class Source(Protocol):
    """Makes a program, of sizes that are known or not."""

    def __call__(self, *, symbolic: bool) -> Made: ...


def sized(begin: int, count: int) -> Iterator[Program]:
    """Programs of every op, and the conformance programs with their constants as arguments, from number `begin` on.

    `count` of them, spread over all.
    """
    for name, made in _sources(begin, count):
        yield name, lambda made=made: made(symbolic=False)


def symbolic(begin: int, count: int) -> Iterator[Program]:
    """The same, of unknown sizes."""
    for name, made in _sources(begin, count):
        yield name, lambda made=made: made(symbolic=True)


def refined(begin: int, count: int) -> Iterator[Program]:
    """The same, refined to the sizes of their arguments."""
    for name, made in _sources(begin, count):
        yield name, lambda made=made: _refined(made(symbolic=True))


def mutants(begin: int, count: int) -> Iterator[Program]:
    """The same, with a size that differs from the declared one."""
    for number, (name, made) in enumerate(_sources(begin, count)):
        yield (
            name,
            lambda made=made, number=number: _mutant(made(symbolic=True), np.random.default_rng([begin, number])),
        )


def _sources(begin: int, count: int) -> list[tuple[str, Source]]:
    sources: list[tuple[str, Source]] = [
        (program.name, partial(_of_program, program)) for program in bit_programs.programs()
    ]
    if FOLDER.is_dir():
        sources += [(case.name, partial(_of_case, case)) for case in read_cases([FOLDER])]
    return sources[begin :: max(1, len(sources) // count)]


def _of_program(program: bit_programs.BitProgram, *, symbolic: bool) -> Made:
    module = spmd.parse(program.text, name=program.name)
    return _with_arguments(module, "main", program.arguments, symbolic)


def _of_case(case: Case, *, symbolic: bool) -> Made:
    if case.expected():
        return None
    module = spmd.parse(case.text, name=str(case.path))
    name = entry_point(module)
    return None if name is None else _with_arguments(module, name, (), symbolic)


def _with_arguments(module: spmd.Module, name: str, arrays: Sequence[np.ndarray], symbolic: bool) -> Made:
    made = with_arguments(module, name, arrays, symbolic=symbolic)
    return None if made is None else (made[0], name, made[1])


def _refined(made: Made) -> Made:
    if made is None:
        return None
    module, name, arrays = made
    function = module.function(name)
    types = [
        TensorType(array.shape, type.element_type) if isinstance(type, TensorType) else type
        for array, type in zip(arrays, function.type.inputs, strict=True)
    ]
    module = refine(module, function, types, ModuleLowering(module, Options()).pass_context.evaluate)
    spmd.verify(module)
    return module, name, arrays


def _mutant(made: Made, rng: np.random.Generator) -> Made:
    if made is None:
        return None
    module, name, arrays = made
    arrays = with_wrong_sizes(module.function(name), arrays, rng)
    spmd.verify(module)
    return module, name, arrays


def indices(begin: int, count: int) -> Iterator[Program]:
    """Gathers, scatters, slices and updates at indices that are anywhere."""
    for number in range(begin, begin + count):
        text, arrays = indexing_program(np.random.default_rng(number))
        yield f"indices {number}\n{text}", lambda text=text, arrays=arrays: (spmd.parse(text), "main", arrays)


def drawn(begin: int, count: int) -> Iterator[Program]:
    """Random programs of all that loop nests are made of; of every other one, an argument is a constant."""
    found = []

    @seed(begin)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=HealthCheck
    )
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        found.append(drawn_program(data, 12))

    draw()
    for number, (module, arrays) in enumerate(found):
        if number % 2 and len(arrays) > 1:
            module, arrays = with_constant(module, arrays), arrays[1:]
        yield f"drawn {number} from {begin}", lambda module=module, arrays=arrays: (module, "main", arrays)


KINDS = {each.__name__: each for each in (sized, symbolic, refined, mutants, indices, drawn)}


def main(placement: str, *kinds: str) -> None:
    guards = Guards(at_end=placement == "end")
    guards.install()
    for each in kinds:
        kind, begin, count = each.split(":")
        guards.results = guards.constants = guards.arenas = 0
        print(f"{kind}, sound: {_run(kind, guards, int(begin), int(count))}", flush=True)


def _run(kind: str, guards: Guards, begin: int, count: int) -> int:
    """Runs programs of a kind; how many there were."""
    sound = 0
    for name, make in islice(KINDS[kind](begin, count), count):
        print(name, flush=True)
        made = None
        try:
            made = make()
            if made is not None:
                module, function, arrays = made
                results = spmd.compile(module, function=function)(*map(guards.copy, arrays))
                expected = spmd.compile(module, function=function, backends=("numpy",))(*arrays)
                if kind == "indices":
                    assert all(map(np.array_equal, results, expected)), "back ends differ"
        except spmd.SpmdError:
            if kind not in ("mutants", "drawn"):
                raise
        sound += made is not None
    assert guards.results > 0 or kind in ("symbolic", "mutants"), "native code was given no memory"
    assert min(guards.constants, guards.arenas) > 0 or kind != "drawn", "some memory was not guarded"
    return sound


if __name__ == "__main__":
    main(*sys.argv[1:])
