"""What Open MPI prints of connections when a job on several hosts begins and ends, taken out of the stream.

Every rank that was connected to one that has gone prints six lines, whatever else is known of the end; its launcher
warns of remote shells that were quicker than itself, and tells of a rank that has gone while it wrote to it.
"""

import re

_CLOSED = re.compile(rb"\[([^\]:\n]*):\d+\] \*\*\* An error occurred in Socket closed\n")
_REPORTED = re.compile(rb"\[[^\]:\n]*:\d+\] \*\*\* reported by process \[\d+,(\d+)\]")
_FOLLOWING = re.compile(rb"\[[^\]:\n]*:\d+\] \*\*\* ")
_WARNING = re.compile(
    rb"\[[^\]:\n]*:\d+\] "
    rb"(plm:ssh: Warning: setpgid\(|pmix_ptl_base: send_msg: write failed: (Connection reset|Broken pipe))"
)


class ConnectionFilter:
    """Passes a byte stream on, without such lines. Lines that begin as they do wait for their end.

    :attr:`cause` tells in one line who found a connection closed first: all that is known, where nothing else is.
    """

    #: Seconds without further bytes after which what is held is to be flushed.
    patience = 0.0

    def __init__(self) -> None:
        self.cause = ""
        self._host = ""
        self._held = b""
        self._at_line_start = True
        self._closed = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes in; return those to be passed on now."""
        passed = b""
        for line in (self._held + data).splitlines(keepends=True):
            if self._at_line_start and line.startswith(b"[") and not line.endswith(b"\n"):
                self._held = line
                return passed
            if not (self._at_line_start and self._is_of_connections(line)):
                passed += line
            self._at_line_start = line.endswith((b"\n", b"\r"))
        self._held = b""
        return passed

    def flush(self) -> bytes:
        """Return all that is held: nothing more came to complete it."""
        passed, self._held = self._held, b""
        if passed:
            self._at_line_start = False
        return passed

    def _is_of_connections(self, line: bytes) -> bool:
        if closed := _CLOSED.match(line):
            self._closed, self._host = True, closed[1].decode(errors="replace")
        elif reported := _REPORTED.match(line) if self._closed else None:
            rank = f"rank {reported[1].decode()} on {self._host}"
            self.cause = self.cause or f"spmd launch: {rank} found another rank gone; all other ranks were ended"
        else:
            self._closed = self._closed and bool(_FOLLOWING.match(line))
        return self._closed or bool(_WARNING.match(line))
