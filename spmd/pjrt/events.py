"""Events: what a frontend waits for."""

from __future__ import annotations

import ctypes
from threading import Event as Flag
from typing import Any

from spmd.pjrt.entries import destroys, entry, error_handle
from spmd.pjrt.errors import Code, PjrtError
from spmd.pjrt.handles import Handle, find

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Event(Handle):
    """Something that happens once: `finish` says that it has, or that it failed."""

    KIND = "Event"

    def __init__(self) -> None:
        super().__init__()
        self._flag = Flag()
        self._error: PjrtError | None = None
        self._waiting: list[tuple[int, int]] = []
        self._unfinished = [True]

    def finish(self, error: BaseException | None = None) -> None:
        """Mark the event as happened, or as failed by `error`, and call what waits for it."""
        try:
            self._unfinished.pop()  # of two threads one alone goes on
        except IndexError:
            return
        self._error = None if error is None else PjrtError.of(error)
        self.record.is_ready, self.record.is_plain = True, error is None
        self._flag.set()
        waiting, self._waiting = self._waiting, []
        for function, argument in waiting:
            self._call(function, argument)

    def when_ready(self, function: int, argument: int) -> None:
        """Call a function of C once it has happened: with an error, or null, and the argument."""
        self._waiting.append((function, argument))
        if self._flag.is_set() and (function, argument) in self._waiting:
            self._waiting.remove((function, argument))
            self._call(function, argument)

    def wait(self) -> None:
        """Wait for it; raises its error."""
        self._flag.wait()
        if self._error is not None:
            raise PjrtError.of(self._error)

    def destroy(self) -> None:
        """Give the record back, but for that of the event of everything that has happened already."""
        if not self.record.is_permanent:
            self.release()

    def _call(self, function: int, argument: int) -> None:
        _Callback(function)(None if self._error is None else error_handle(self._error), argument)


def _ready() -> Event:
    event = Event()
    event.finish()
    event.record.is_permanent = True
    return event


#: The one event of everything that has happened already.
READY = _ready()


def _pending() -> Event:
    event = Event()
    event.record.is_permanent = True
    return event


#: What buffers have whose values are not there; it never happens, and nothing waits for it.
PENDING = _pending()


destroys("Event_Destroy", Event, "event")


@entry("Event_Error")
def _(args: Any) -> None:
    event = find(Event, args.event)
    if not event.record.is_ready:
        raise PjrtError(Code.FAILED_PRECONDITION, "the event has not happened yet")
    event.wait()


@entry("Event_Await")
def _(args: Any) -> None:
    find(Event, args.event).wait()


@entry("Event_OnReady")
def _(args: Any) -> None:
    if not args.callback:
        raise PjrtError(Code.INVALID_ARGUMENT, "PJRT_Event_OnReady needs a callback")
    find(Event, args.event).when_ready(args.callback, args.user_arg)


@entry("Event_Create")
def _(args: Any) -> None:
    args.event = Event().address


@entry("Event_Set")
def _(args: Any) -> None:
    error = None
    if args.error_code:
        text = ctypes.string_at(args.error_message, args.error_message_size) if args.error_message else b""
        error = PjrtError(args.error_code, text.decode(errors="replace"))
    find(Event, args.event).finish(error)
