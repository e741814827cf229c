"""Errors of communication between processes."""


class CollectiveError(Exception):
    """Processes disagree on a communication, or one of them cannot take part in it."""


class GroupError(CollectiveError, ValueError):
    """A process group that does not fit the process grid."""
