"""Running a program on a grid of processes inside a test, and comparing the results of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import spmd
from spmd.compiler.pipeline.prepare import declared_grid
from spmd.errors import UsageError
from spmd.runtime.world import ranks, under_mpi
from spmd.support.arrays import Array, numpy_has
from spmd.support.usage import check_module, kind_of

#: Values per process: a sequence with one entry per process in rank order, or a function of the rank.
PerProcess = Sequence[Sequence[Array]] | Callable[[int], Sequence[Array]]


@dataclass(frozen=True)
class Outcome:
    """The results of the processes that this Python process has run: all of them, or its own rank."""

    grid: spmd.ProcessGrid
    results: dict[int, tuple[Array, ...]]
    agree: Callable[[str], Sequence[str]]

    def __getitem__(self, rank: int) -> tuple[Array, ...]:
        """Return the results of process `rank`; KeyError if it ran elsewhere."""
        return self.results[rank]

    def expect(self, expected: PerProcess, *, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Compare each process's results, types and shapes included; NaN equals NaN.

        Exactly, unless `rtol` or `atol` is given. Raises AssertionError, which lists every process that differs.
        """
        _check_entries("expect takes the results", expected, self.grid)
        faults = [
            f"process {rank} {self.grid.process_id(rank)}, result {index}: {fault}"
            for rank, results in self.results.items()
            for index, fault in enumerate(_faults(results, _of(expected, rank, "the results expected"), rtol, atol))
            if fault
        ]
        messages = [text for text in self.agree("\n".join(faults)) if text]
        assert not messages, "\n" + "\n".join(messages)


def run(
    program: str | spmd.Module,
    grid: spmd.ProcessGrid | tuple[int, int] | None = None,
    inputs: PerProcess = (),
    explore: int = 0,
    **options: Any,
) -> Outcome:
    module = spmd.parse(inspect.cleandoc(program), name="snippet") if isinstance(program, str) else program
    check_module(module, "spmd_run")
    chosen = _grid(module, grid)
    _check_entries("spmd_run takes its inputs", inputs, chosen, may_be_empty=True)
    none_given = not callable(inputs) and len(inputs) == 0
    arrays = [() if none_given else _of(inputs, rank, "inputs") for rank in range(chosen.size)]
    world = _ranks(chosen)
    if world is None and explore:
        options.pop("mode", None)
        found = spmd.explore(module, chosen, arrays, orders=explore, **options)
        assert found.different is None, f"\n{found}"
        error = (found.failed or found.first).error
        if error is not None:
            raise error
        return Outcome(chosen, dict(enumerate(found.first.results or ())), lambda text: [text])
    if world is None:
        results = spmd.run_parallel(module, chosen, arrays, **options)
        return Outcome(chosen, dict(enumerate(results)), lambda text: [text])
    options.pop("mode", None)
    executable = spmd.compile(module, chosen, **options)
    own = {world.rank: executable(*arrays[world.rank])}
    return Outcome(chosen, own, lambda text: world.exchange_results(text, "the outcome of a test"))


def _grid(module: spmd.Module, grid: spmd.ProcessGrid | tuple[int, int] | None) -> spmd.ProcessGrid:
    if grid is None:
        return declared_grid(module)
    if isinstance(grid, spmd.ProcessGrid):
        return grid
    if isinstance(grid, tuple | list) and len(grid) == 2:
        return spmd.ProcessGrid(*grid)
    likely = f": ({grid}, 1) for {grid} replicas, (1, {grid}) for {grid} partitions" if type(grid) is int else ""
    raise UsageError(f"spmd_run takes its grid as (replicas, partitions) or a ProcessGrid, got {grid!r}{likely}")


def _ranks(grid: spmd.ProcessGrid) -> Any:
    """Return the communicator of all MPI ranks if there are as many as processes of the grid, otherwise None."""
    if grid.size == 1 or not under_mpi():
        return None
    world = ranks()
    return world if world.size == grid.size else None


def _check_entries(what: str, values: object, grid: spmd.ProcessGrid, *, may_be_empty: bool = False) -> None:
    """Raise UsageError unless `values` is a function, or has one entry per process of the grid."""
    if callable(values):
        return
    taken = f"{what} as a function of the rank, or as one entry per process"
    if isinstance(values, str | bytes) or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        raise UsageError(f"{taken}, got {kind_of(values)}")
    if len(values) != grid.size and not (may_be_empty and len(values) == 0):
        raise UsageError(f"{taken}: {grid.size} on a {grid} grid, got {len(values)}")


def _of(values: PerProcess, rank: int, name: str) -> Sequence[Array]:
    arrays = values(rank) if callable(values) else values[rank]
    single = isinstance(arrays, str | bytes) or (isinstance(arrays, np.ndarray) and arrays.ndim == 0)
    if single or not hasattr(arrays, "__len__"):
        raise UsageError(f"{name} of process {rank} must be a sequence of arrays, got {kind_of(arrays)}")
    return arrays


def _faults(results: Sequence[Array], expected: Sequence[Array], rtol: float, atol: float) -> Iterator[str]:
    if len(results) != len(expected):
        yield f"there are {len(results)} results, {len(expected)} are expected"
        return
    for actual, expectation in zip(results, expected, strict=True):
        try:
            _compare(np.asarray(actual), np.asarray(expectation), rtol, atol)
            yield ""
        except AssertionError as error:
            yield str(error).strip()


def _compare(actual: Array, expected: Array, rtol: float, atol: float) -> None:
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        raise AssertionError(f"{actual.dtype} of shape {actual.shape}, expected {expected.dtype} of {expected.shape}")
    if not numpy_has(actual.dtype):
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
