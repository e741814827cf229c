"""Removal of Open MPI's messages on connections from the output of jobs on several hosts.

Every rank that was connected to a lost one prints six lines, whatever else is reported; the launcher warns of remote
shells that exit before it has registered them, and of ranks that are lost while it writes to them.
"""

import re

from launch.streams import Filter

_CLOSED = re.compile(rb"\[([^\]:\n]*):\d+\] \*\*\* An error occurred in Socket closed\n")
_REPORTED = re.compile(rb"\[[^\]:\n]*:\d+\] \*\*\* reported by process \[\d+,(\d+)\]")
_FOLLOWING = re.compile(rb"\[[^\]:\n]*:\d+\] \*\*\* ")
_WARNING = re.compile(
    rb"\[[^\]:\n]*:\d+\] "
    rb"(plm:ssh: Warning: setpgid\(|pmix_ptl_base: send_msg: write failed: (Connection reset|Broken pipe))"
)


class ConnectionFilter(Filter):
    """Forwards a byte stream without such lines.

    :attr:`cause` names, in one line, the rank that first found a connection closed, for when nothing else is known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cause = ""
        self._host = ""
        self._at_line_start = True
        self._closed = False

    def feed(self, data: bytes) -> bytes:
        passed = b""
        for line in (self._pending + data).splitlines(keepends=True):
            if self._at_line_start and line.startswith(b"[") and not line.endswith(b"\n"):
                self._pending = line
                return passed
            if not (self._at_line_start and self._is_of_connections(line)):
                passed += line
            self._at_line_start = line.endswith((b"\n", b"\r"))
        self._pending = b""
        return passed

    def flush(self) -> bytes:
        if self._pending:
            self._at_line_start = False
        return super().flush()

    def _is_of_connections(self, line: bytes) -> bool:
        if closed := _CLOSED.match(line):
            self._closed, self._host = True, closed[1].decode(errors="replace")
        elif reported := _REPORTED.match(line) if self._closed else None:
            rank = f"rank {reported[1].decode()} on {self._host}"
            self.cause = (
                self.cause or f"spmd launch: {rank} lost its connection to another rank; all other ranks were ended"
            )
        else:
            self._closed = self._closed and bool(_FOLLOWING.match(line))
        return self._closed or bool(_WARNING.match(line))
