"""A cache of programs by number of ranks, which can build them ahead in a background thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Generic, TypeVar

from spmd.errors import UsageError
from spmd.ir import Module

P = TypeVar("P")


class ProgramsByRanks(Generic[P]):
    """The results of `build(ranks)`, cached by `ranks`."""

    def __init__(self, build: Callable[[int], P]) -> None:
        self._build = build
        self._programs: dict[int, Future[P]] = {}
        self._lock = Lock()

    def __getitem__(self, ranks: int) -> P:
        """Return the program for `ranks` ranks; blocks while another thread builds it. Raises what `build` raises."""
        if ranks not in self._programs:
            self._make_all([ranks])
        return self._programs[ranks].result()

    def make_ahead(self, numbers: Sequence[int]) -> None:
        """Build the missing programs for `numbers` of ranks one after the other in a background thread."""
        missing = [ranks for ranks in numbers if ranks not in self._programs]
        if missing:
            Thread(target=self._make_all, args=(missing,), name=f"programs for {missing} ranks", daemon=True).start()

    def _make_all(self, numbers: Sequence[int]) -> None:
        for ranks in numbers:
            with self._lock:
                future = None if ranks in self._programs else self._begin(ranks)
            if future is not None:
                self._make(ranks, future)

    def _begin(self, ranks: int) -> Future[P]:
        future = self._programs[ranks] = Future()
        return future

    def _make(self, ranks: int, future: Future[P]) -> None:
        try:
            program = self._build(ranks)
            if (fault := _misunderstanding(program)) is not None:
                raise UsageError(f"build({ranks}) {fault}")
            future.set_result(program)
        except BaseException as error:
            future.set_exception(error)


def _misunderstanding(program: object) -> str | None:
    """Return the error text if the result of `build` is not a callable that computes a step; otherwise None."""
    if program is None:
        return "returned None: it is to return what computes a step, a function"
    if isinstance(program, Module) or hasattr(program, "as_text"):
        name = type(program).__name__
        return f"returned a {name}, not what runs it: return spmd.compile(module, grid), or spmd.jax.jit(f)"
    return None
