"""The state of each rank as a marker file in the folder of failure reports.

A running rank has a file ``.running-<rank>``. It is renamed ``.starting-<rank>`` before MPI initialization, which waits
for all ranks, ``.begun-<rank>`` after it, ``.finalized-<rank>`` when MPI is finalized, since a program may exit
immediately afterwards, and ``.ended-<rank>`` when the interpreter exits, which finalizes MPI. A rank that is gone and
left one of the first three was killed or crashed; one that left the fourth may not have disconnected from its launcher.
The ranks of an elastic job create ``.met`` after their first rendezvous, and ``.over-<rank>`` when their program ends,
before they disconnect from each other: a later failure loses nothing.
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
    """Return the ranks, running or gone, that have finalized neither MPI nor their interpreter."""
    return _ranks(folder, _RUNNING, _STARTING, _BEGUN)


def ranks_that_start(folder: Path) -> set[int]:
    """Return the ranks that are in MPI initialization, or exited during it."""
    return _ranks(folder, _STARTING)


def ranks_that_have_begun(folder: Path) -> set[int]:
    """Return the ranks on which MPI is initialized."""
    return _ranks(folder, _BEGUN, _FINALIZED)


def ranks_that_ended(folder: Path) -> set[int]:
    """Return the ranks whose interpreter exited normally."""
    return _ranks(folder, _ENDED)


def note_meeting(folder: Path) -> None:
    """Record that the ranks of an elastic job have met: from now on it survives the loss of ranks."""
    with contextlib.suppress(OSError):
        (folder / _MET).touch()


def have_met(folder: Path) -> bool:
    """Return whether the ranks of an elastic job have met, as recorded by ranks of this host."""
    return (folder / _MET).exists()


def ranks_gone_after_mpi(folder: Path) -> set[int]:
    """Return the ranks that have finalized MPI but not exited their interpreter."""
    return _ranks(folder, _FINALIZED)


def ranks_ended(folder: Path) -> set[int]:
    """Return the ranks that have finalized MPI or exited their interpreter."""
    return _ranks(folder, _FINALIZED, _ENDED)


def note_end(folder: Path, rank: int) -> None:
    """Record that the program of ``rank`` has ended."""
    with contextlib.suppress(OSError):
        (folder / f"{_OVER}{rank}").touch()


def programs_ended(folder: Path) -> set[int]:
    """Return the ranks whose programs have ended, whatever happened to them afterwards."""
    return _ranks(folder, _OVER, _ENDED)


def all_were_lost(folder: Path) -> bool:
    """Return whether ranks have run here and the program of none of them has ended."""
    return bool(ranks_without_ending(folder)) and not _ranks(folder, _OVER, _FINALIZED, _ENDED)


def _ranks(folder: Path, *states: str) -> set[int]:
    return {int(path.name.removeprefix(state)) for state in states for path in folder.glob(state + "*")}


def mark(folder: Path, rank: int) -> None:
    """Maintain the marker file of this process, ``rank``, in ``folder``."""
    marker = Marker(folder, rank)
    atexit.register(marker.end)
    module = sys.modules.get(_MPI)
    if module is None:
        sys.meta_path.insert(0, _AfterImport(marker))
    else:
        marker.watch(module)


class Marker:
    """Maintains the marker file of `rank` in `folder`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._file = folder / f"{_RUNNING}{rank}"
        self._file.touch()

    def end(self) -> None:
        """Mark the rank as ended."""
        self._move(_ENDED)

    def start(self) -> None:
        """Mark the rank as starting MPI."""
        self._move(_STARTING)

    def _move(self, state: str) -> None:
        with contextlib.suppress(OSError):
            self._file = self._file.rename(self._folder / f"{state}{self._rank}")

    def watch(self, module: ModuleType) -> None:
        """Mark the rank as begun if MPI is running, and register a callback that marks it as finalized.

        ``MPI_Finalize`` deletes the attributes of ``MPI_COMM_SELF`` before anything else (MPI 4.1, section 11.2.4).
        """
        if module.Is_initialized() and not module.Is_finalized():
            self._move(_BEGUN)
            key = module.Comm.Create_keyval(delete_fn=lambda *attribute: self._move(_FINALIZED))
            module.COMM_SELF.Set_attr(key, None)


class _AfterImport:
    """An import hook that watches MPI once mpi4py's module is loaded."""

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
