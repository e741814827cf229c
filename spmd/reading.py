"""Reading programs: from a file or from text, verified unless asked otherwise."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from spmd import dialects as _dialects  # noqa: F401  (declares the ops)
from spmd.compiler.verify import verify as _verify
from spmd.errors import ParseError
from spmd.ir import Module
from spmd.syntax import parse as _parse


def parse(text: str | bytes, name: str = "<string>", *, verify: bool = True) -> Module:
    """The module that `text` says. `name` stands for the file in errors.

    Raises ParseError where the text is not the language's, VerificationError where the program breaks a constraint.
    """
    module = _parse(text, name=name)
    if verify:
        _verify(module)
    return module


def load(path: str | PathLike[str], *, verify: bool = True) -> Module:
    """The module in the file at `path`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ParseError(f"{fspath(path)}: cannot be read: {error.strerror}") from error
    return parse(data, fspath(path), verify=verify)
