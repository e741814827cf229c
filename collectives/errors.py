"""Errors of communication, and the registry of errors whose tracebacks show only the user's frames."""

from types import FrameType


class CommunicationError(Exception):
    """Processes disagree on a communication, or one of them cannot take part in it."""


class GroupError(CommunicationError, ValueError):
    """A process group that does not fit the process grid."""


#: The class of errors for invalid process grids; a package above can register a subclass.
_grid_error: type[GroupError] = GroupError


def refuse_grids_with(kind: type[GroupError]) -> None:
    """Raise errors of class `kind` for invalid process grids from now on."""
    global _grid_error
    _grid_error = kind


def grid_error(message: str) -> GroupError:
    """Return the error for an invalid grid, or for a rank outside a grid."""
    return _grid_error(message)


PACKAGES = frozenset({"collectives", "launch", "partitioner", "spmd"})
#: Errors whose message suffices: the frames between the user's call and the error belong to this project.
_plain: list[type[BaseException]] = [CommunicationError]


def report_without_frames(kind: type[BaseException]) -> None:
    """Report errors of class `kind` with the user's frames only from now on."""
    _plain.append(kind)


def is_reported_without_frames(error: BaseException | None) -> bool:
    """Return whether an error is about a program or a call, so that the project's frames add nothing."""
    return isinstance(error, tuple(_plain))


def is_own_frame(frame: FrameType) -> bool:
    """Return whether a frame belongs to this project."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in PACKAGES
