"""How far ranks have come, as files in the folder of failure reports tell.

A rank that runs has a file ``.running-<rank>`` there. It is renamed ``.starting-<rank>`` when MPI is about to begin,
which waits for all ranks, ``.begun-<rank>`` when it has, ``.finalized-<rank>`` when MPI ends, for a program may leave
at once after it, and ``.ended-<rank>`` when the interpreter does, which ends MPI. Who has gone and left one of the
first three has ended in another way; who has left the fourth did not give MPI the time to part from its launcher.
The ranks of an elastic job leave ``.met`` there when they have met for the first time, and ``.over-<rank>`` when their
program has come to its end, before they take leave of each other: nothing is lost by what happens to them then.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_RUNNING, _STARTING, _BEGUN = ".running-", ".starting-", ".begun-"
_FINALIZED, _ENDED = ".finalized-", ".ended-"
_MET, _OVER = ".met", ".over-"
_MPI = "mpi4py.MPI"


def ranks_without_ending(folder: Path) -> set[int]:
    """The ranks that have ended neither MPI nor their interpreter, though they may have gone."""
    return _ranks(folder, _RUNNING, _STARTING, _BEGUN)


def ranks_that_start(folder: Path) -> set[int]:
    """The ranks that wait for all others to begin with MPI, or have gone while they did."""
    return _ranks(folder, _STARTING)


def ranks_that_have_begun(folder: Path) -> set[int]:
    """The ranks on which MPI has begun."""
    return _ranks(folder, _BEGUN, _FINALIZED)


def ranks_that_ended(folder: Path) -> set[int]:
    """The ranks that have come to their own end."""
    return _ranks(folder, _ENDED)


def note_meeting(folder: Path) -> None:
    """Notes that the ranks of an elastic job have met: from now on it goes on without those that are lost."""
    with contextlib.suppress(OSError):
        (folder / _MET).touch()


def have_met(folder: Path) -> bool:
    """Whether the ranks of an elastic job have met, as far as ranks of this host have noted it."""
    return (folder / _MET).exists()


def ranks_gone_after_mpi(folder: Path) -> set[int]:
    """The ranks that have ended MPI and not their interpreter, of those that have gone."""
    return _ranks(folder, _FINALIZED)


def ranks_ended(folder: Path) -> set[int]:
    """The ranks that have ended MPI, or come to the end of their interpreter."""
    return _ranks(folder, _FINALIZED, _ENDED)


def note_end(folder: Path, rank: int) -> None:
    """Note that the program of ``rank`` has come to its end."""
    with contextlib.suppress(OSError):
        (folder / f"{_OVER}{rank}").touch()


def programs_ended(folder: Path) -> set[int]:
    """Return the ranks whose programs have come to their end, whatever happened to them after that."""
    return _ranks(folder, _OVER, _ENDED)


def all_were_lost(folder: Path) -> bool:
    """Whether ranks have run here, and the program of none of them has come to its end."""
    return bool(ranks_without_ending(folder)) and not _ranks(folder, _OVER, _FINALIZED, _ENDED)


def _ranks(folder: Path, *states: str) -> set[int]:
    return {int(path.name.removeprefix(state)) for state in states for path in folder.glob(state + "*")}


def mark(folder: Path, rank: int) -> None:
    """Have this process, ``rank``, keep its file in ``folder``."""
    marker = Marker(folder, rank)
    atexit.register(marker.end)
    module = sys.modules.get(_MPI)
    if module is None:
        sys.meta_path.insert(0, _AfterImport(marker))
    else:
        marker.watch(module)


class Marker:
    """Keeps the file of `rank` in `folder`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._file = folder / f"{_RUNNING}{rank}"
        self._file.touch()

    def end(self) -> None:
        """The rank has come to its end."""
        self._move(_ENDED)

    def start(self) -> None:
        """The rank begins with MPI."""
        self._move(_STARTING)

    def _move(self, state: str) -> None:
        with contextlib.suppress(OSError):
            self._file = self._file.rename(self._folder / f"{state}{self._rank}")

    def watch(self, module: ModuleType) -> None:
        """Have MPI's end, where MPI runs already, rename the file.

        ``MPI_Finalize`` deletes the attributes of ``MPI_COMM_SELF`` before all else (MPI 4.1, section 11.2.4).
        """
        if module.Is_initialized() and not module.Is_finalized():
            self._move(_BEGUN)
            key = module.Comm.Create_keyval(delete_fn=lambda *attribute: self._move(_FINALIZED))
            module.COMM_SELF.Set_attr(key, None)


class _AfterImport:
    """Finds mpi4py's module as it would be found, and has its MPI watched once it is loaded."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MPI:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_watch(module: ModuleType) -> None:
                self._marker.start()
                load(module)
                self._marker.watch(module)

            spec.loader.exec_module = load_and_watch  # type: ignore[method-assign]
        return spec
