"""Removal of the banners of Hydra, the launcher of MPICH and Intel MPI, on how a job ended.

They name ranks that were ended as well as the one that failed; the records of launch.rank are exact.
"""

from launch.streams import Filter

_RULE = b"=" * 83 + b"\n"
_TITLE = b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
_AFTERWARDS = (
    b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING:",
    b"This typically refers to a problem with your application.",
    b"Please see the FAQ page for debugging suggestions",
)


class HydraBannerFilter(Filter):
    """Forwards a byte stream without Hydra's banners. An empty line and a rule may begin one."""

    def __init__(self) -> None:
        super().__init__()
        self._line = b""  # the last line, while it is incomplete
        self._in_banner = self._was_banner = False

    def feed(self, data: bytes) -> bytes:
        *lines, self._line = (self._line + data).split(b"\n")
        passed = b"".join([self._complete(line + b"\n") for line in lines])
        if not (self._in_banner or self._may_belong(self._line)):
            passed += self.flush()
        return passed

    def flush(self) -> bytes:
        line, self._line = self._line, b""
        return super().flush() + line

    def _complete(self, line: bytes) -> bytes:
        if self._in_banner:
            self._in_banner = line != _RULE
            self._was_banner = True
            return b""
        if self._pending.endswith(_RULE) and line.startswith(_TITLE):
            self._pending, self._in_banner = b"", True
            return b""
        if self._was_banner and line.startswith(_AFTERWARDS):
            return b""
        if line == b"\n" or line == _RULE:
            earlier, self._pending = (b"", self._pending + line) if self._pending == b"\n" else (self._pending, line)
            return earlier
        passed, self._pending = self._pending + line, b""
        return passed

    def _may_belong(self, line: bytes) -> bool:
        if not line:
            return bool(self._pending)
        begins = (_RULE, _TITLE, *(_AFTERWARDS if self._was_banner else ()))
        return any(words.startswith(line) or line.startswith(words) for words in begins)
