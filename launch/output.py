"""Standard output of the commands: a failure to write is an error, whatever the encoding.

Python would report a full disk by a traceback at exit, and a character that the terminal's encoding lacks by another;
if standard output is closed it would report nothing, with status 0.
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
    """A stream to a descriptor whose errors name standard output."""

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
    """Replaces a standard output that was closed before the command started."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), NAME)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return each byte that an encoding lacks as `\\XX`, the escape of strings in MLIR's text."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    data = error.object[error.start : error.end].encode("utf-8", "surrogateescape")
    return "".join(f"\\{byte:02X}" for byte in data), error.end


codecs.register_error(_ESCAPE, _escaped)


def write_program(text: str) -> None:
    """Write a program's text so that it can be parsed again: in UTF-8, or with escapes in its strings."""
    if (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8":
        text = text.encode("ascii", _ESCAPE).decode("ascii")
    sys.stdout.write(text.rstrip("\n") + "\n")


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Make `sys.stdout` raise OSError, with the file name NAME, if it cannot be written, until the end of the context.

    A stream that replaces it, as in tests, is left there.
    """
    if sys.stderr is None:  # print would write to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (until the process exits)
    before = sys.stdout
    stream = _stream(before)
    if stream is None:
        yield
        return
    sys.stdout = stream
    try:
        try:
            yield
        except SystemExit:  # after help was printed
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
    """Close the stream; what it still holds could not be written, which has been reported."""
    with contextlib.suppress(OSError):
        stream.close()
