"""Runs programs with all memory that native code is given between pages that must not be touched.

`python -m tests.memory.guarded KIND end|start BEGIN COUNT`: programs BEGIN to BEGIN + COUNT of a kind; the last line is
`sound: COUNT`, and before it stands the name of each program that begins, so that a crash tells where. A program may
end with an SpmdError, and with no other exception.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import spmd
from launch.conformance import Case, entry_point, read_cases
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import Options
from spmd.compiler.pipeline.refine import refine
from spmd.types import TensorType
from tests.backends.llvm.drawn import drawn_program
from tests.memory.guards import Guards
from tests.memory.programs import indexing_program, with_arguments, with_constant, with_wrong_sizes

FOLDER = Path(__file__).parents[2].parent / "shared" / "conformance"
#: A program's name, and what makes it: a module, the name of its function, and arguments.
Program = tuple[str, Callable[[], tuple[spmd.Module, str, list[np.ndarray]] | None]]


def conformance(begin: int, count: int) -> Iterator[Program]:
    """The conformance programs, their constants arguments; `count` of them, spread over all, from number `begin` on."""
    for name, case in _cases(begin, count):
        yield name, lambda case=case: _of_case(case, symbolic=False)


def symbolic(begin: int, count: int) -> Iterator[Program]:
    """The same, of unknown sizes."""
    for name, case in _cases(begin, count):
        yield name, lambda case=case: _of_case(case, symbolic=True)


def refined(begin: int, count: int) -> Iterator[Program]:
    """The same, once their arguments have told the sizes."""
    for name, case in _cases(begin, count):
        yield name, lambda case=case: _refined(case)


def mutants(begin: int, count: int) -> Iterator[Program]:
    """The same, of which a size is not what it is said to be."""
    for number, (name, case) in enumerate(_cases(begin, count)):
        yield name, lambda case=case, number=number: _mutant(case, np.random.default_rng([begin, number]))


def _cases(begin: int, count: int) -> Iterator[tuple[str, Case]]:
    cases = list(read_cases([FOLDER])) if FOLDER.is_dir() else []
    return ((case.name, case) for case in cases[begin :: max(1, len(cases) // max(1, count))])


def _of_case(case: Case, *, symbolic: bool) -> tuple[spmd.Module, str, list[np.ndarray]] | None:
    if case.expected():
        return None
    module = spmd.parse(case.text, name=str(case.path))
    made = with_arguments(module, symbolic=symbolic)
    name = entry_point(module)
    return None if made is None or name is None else (made[0], name, made[1])


def _refined(case: Case) -> tuple[spmd.Module, str, list[np.ndarray]] | None:
    made = _of_case(case, symbolic=True)
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


def _mutant(case: Case, rng: np.random.Generator) -> tuple[spmd.Module, str, list[np.ndarray]] | None:
    made = _of_case(case, symbolic=True)
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


KINDS = {each.__name__: each for each in (conformance, symbolic, refined, mutants, indices, drawn)}


def main(kind: str, placement: str, begin: str, count: str) -> None:
    guards = Guards(at_end=placement == "end")
    guards.install()
    sound = 0
    for name, make in islice(KINDS[kind](int(begin), int(count)), int(count)):
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
    print(f"sound: {sound}")


if __name__ == "__main__":
    main(*sys.argv[1:])
