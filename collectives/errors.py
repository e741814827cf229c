"""Errors of communication between processes."""


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
