"""Reading programs: from a file or from text, verified unless asked otherwise."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from spmd import dialects as _dialects  # noqa: F401  (declares the ops)
from spmd.collecting import no_collection
from spmd.compiler.verify import verify as _verify
from spmd.errors import ParseError
from spmd.ir import Module
from spmd.syntax import parse as _parse

_HEADER_WITHIN = 4096


def parse(text: str | bytes, name: str = "<string>", *, verify: bool = True) -> Module:
    """The module that `text`, of StableHLO or XLA's HLO, says. `name` stands for the file in errors.

    Raises ParseError where the text is not the language's, VerificationError where the program breaks a constraint.
    """
    with no_collection():
        from_hlo = _parse_hlo(text, name)
        module = from_hlo or _parse(text, name=name)
        if verify:
            _verify(module, scoped=from_hlo is None)
    return module


def load(path: str | PathLike[str], *, verify: bool = True) -> Module:
    """The module in the file at `path`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ParseError(f"{fspath(path)}: cannot be read: {error.strerror}") from error
    return parse(data, fspath(path), verify=verify)


def _parse_hlo(text: str | bytes, name: str) -> Module | None:
    """The module of HLO text; None when `text` is not that. The builder, which reads it, is loaded only if needed."""
    start = text[:_HEADER_WITHIN]
    if (b"HloModule" if isinstance(start, bytes) else "HloModule") not in start:  # type: ignore[operator]
        return None
    from spmd.builder.hlo import looks_like_hlo, parse_hlo

    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return parse_hlo(decoded, name) if looks_like_hlo(decoded) else None
