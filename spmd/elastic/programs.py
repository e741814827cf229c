"""Programs by the number of ranks that they are for, made once, and ahead where they may be needed soon."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any


class Programs:
    """What `build(ranks)` makes, kept by `ranks`."""

    def __init__(self, build: Callable[[int], Any]) -> None:
        self._build = build
        self._made: dict[int, Future[Any]] = {}

    def __getitem__(self, ranks: int) -> Any:
        """That for `ranks` ranks; waits for it where it is being made. Raises what `build` raises."""
        if ranks not in self._made:
            self._make(ranks, self._begin(ranks))
        return self._made[ranks].result()

    def make_ahead(self, ranks: int) -> None:
        """Makes that for `ranks` ranks behind the caller's back."""
        if ranks not in self._made:
            arguments = ranks, self._begin(ranks)
            Thread(target=self._make, args=arguments, name=f"programs for {ranks} ranks", daemon=True).start()

    def _begin(self, ranks: int) -> Future[Any]:
        future = self._made[ranks] = Future()
        return future

    def _make(self, ranks: int, future: Future[Any]) -> None:
        try:
            future.set_result(self._build(ranks))
        except BaseException as error:
            future.set_exception(error)
