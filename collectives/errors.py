"""Errors of communication between processes, and which errors are reported with the user's frames alone."""

from types import FrameType


class CommunicationError(Exception):
    """Processes disagree on a communication, or one of them cannot take part in it."""


class GroupError(CommunicationError, ValueError):
    """A process group that does not fit the process grid."""


#: What a process grid that cannot be is refused with. Who builds on this package puts an error of its own family here.
_grid_error: type[GroupError] = GroupError


def refuse_grids_with(kind: type[GroupError]) -> None:
    """From now on, a grid that cannot be is refused with errors of class `kind`."""
    global _grid_error
    _grid_error = kind


def grid_error(message: str) -> GroupError:
    """The error with which a grid is refused, and a rank that it does not have."""
    return _grid_error(message)


_PACKAGES = frozenset({"collectives", "launch", "partitioner", "spmd"})
#: What these say is enough: the frames between the user's call and the error are of this project.
_plain: list[type[BaseException]] = [CommunicationError]


def report_without_frames(kind: type[BaseException]) -> None:
    """From now on, errors of class `kind` are reported with the user's frames alone."""
    _plain.append(kind)


def is_reported_without_frames(error: BaseException | None) -> bool:
    """Return whether an error says what is wrong with a program or a call, so that the project's frames add nothing."""
    return isinstance(error, tuple(_plain))


def is_own_frame(frame: FrameType) -> bool:
    """Return whether a frame is of this project."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _PACKAGES
