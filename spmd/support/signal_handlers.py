"""Distinguishing exceptions of Python's signal handlers from those of the code that they interrupt."""

from __future__ import annotations

from types import FrameType, TracebackType


def raised_in_handler(error: BaseException) -> bool:
    """Whether a signal handler raised `error` while other code ran.

    Python calls a handler with the number of the signal and the frame that it interrupted, which is the caller's frame
    in the traceback; no other function is given its caller's frame.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if _was_given(trace.tb_next, trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _was_given(trace: TracebackType, frame: FrameType) -> bool:
    values = trace.tb_frame.f_locals.values()
    return any(
        value is frame or (isinstance(value, tuple) and len(value) == 2 and value[1] is frame) for value in values
    )
