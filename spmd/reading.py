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
from spmd.syntax.parser import decode

_HEADER_WITHIN = 4096


def parse(text: str | bytes, name: str = "<string>", *, verify: bool = True) -> Module:
    """The module that `text`, of StableHLO or XLA's HLO, says. `name` stands for the file in errors.

    Raises ParseError where the text is not the language's, VerificationError where the program breaks a constraint.
    """
    if isinstance(text, bytes):
        text = decode(text, name).text  # nobody needs the bytes any more
    with no_collection():
        from_hlo = _parse_hlo(text, name)
        module = from_hlo or _parse(text, name=name)
        if verify:
            _verify(module, scoped=from_hlo is None)
    return module


def load(path: str | PathLike[str], *, verify: bool = True) -> Module:
    """The module in the file at `path`."""
    return parse(_read(path), fspath(path), verify=verify)


def _read(path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ParseError(f"{fspath(path)}: cannot be read: {error.strerror}") from error


def _parse_hlo(text: str, name: str) -> Module | None:
    """The module of HLO text; None when `text` is not that. The builder, which reads it, is loaded only if needed."""
    if "HloModule" not in text[:_HEADER_WITHIN]:
        return None
    from spmd.builder.hlo import looks_like_hlo, parse_hlo

    return parse_hlo(text, name) if looks_like_hlo(text) else None
