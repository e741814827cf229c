"""Standard output as the commands write to it: what cannot be written is an error, whatever the encoding.

Python would tell of a full disk when it ends, by a traceback, and of a character that the terminal's encoding lacks by
another; where standard output is closed it would say nothing, with status 0.
"""

import codecs
import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

NAME = "standard output"
_ESCAPE = "launch.escape"


class _Descriptor(io.RawIOBase):
    """What is written goes to a descriptor; errors name standard output."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, NAME) from None


class _Closed(io.RawIOBase):
    """In place of a standard output that was closed before the command began."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), NAME)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Each byte of what an encoding lacks as `\\XX`, which is how strings of MLIR's text spell it, too."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    data = error.object[error.start : error.end].encode("utf-8", "surrogateescape")
    return "".join(f"\\{byte:02X}" for byte in data), error.end


codecs.register_error(_ESCAPE, _escaped)


def write_program(text: str) -> None:
    """Writes a program's text, so that it is read again as it was: in UTF-8, or as escapes in its strings."""
    if (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8":
        text = text.encode("ascii", _ESCAPE).decode("ascii")
    sys.stdout.write(text.rstrip("\n") + "\n")


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Within it `sys.stdout` raises OSError, of the file name NAME, where it cannot be written, by the end.

    A stream that somebody has put in its place, as tests do, is left there.
    """
    if sys.stderr is None:  # print would write to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (until the process ends)
    before = sys.stdout
    stream = _stream(before)
    if stream is None:
        yield
        return
    sys.stdout = stream
    try:
        try:
            yield
        except SystemExit:  # after help, which was printed
            stream.flush()
            raise
        stream.flush()
    finally:
        sys.stdout = before
        _let_go(stream)


def _stream(standard: TextIO | None) -> io.TextIOWrapper | None:
    if standard is None:
        return io.TextIOWrapper(io.BufferedWriter(_Closed()), "utf-8", "surrogateescape")
    buffer = getattr(standard, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is no buffer
    if type(raw) is not io.FileIO:
        return None
    standard.flush()
    descriptor = _Descriptor(raw.fileno())
    at_once = descriptor.isatty() or buffer is raw
    return io.TextIOWrapper(io.BufferedWriter(descriptor), standard.encoding, _ESCAPE, line_buffering=at_once)


def _let_go(stream: io.TextIOWrapper) -> None:
    """Ends the stream; what it still holds could not be written, which has been told."""
    with contextlib.suppress(OSError):
        stream.close()
