"""Reading programs: from a file, text or bytes, verified unless asked otherwise.

The format is recognized by the first bytes, never by the file's name.
"""

from __future__ import annotations

import mmap
import re
from os import PathLike, fspath, fstat
from pathlib import Path

import numpy as np

from spmd import dialects as _dialects  # noqa: F401  (declares the ops)
from spmd.artifacts.formats import HEAD, TEXT, format_of, looks_saved, read_binary
from spmd.compiler.pipeline.verify import verify as _verify
from spmd.errors import FileError, MissingFileError, ParseError, UsageError
from spmd.io.objects import program_in
from spmd.ir import Module
from spmd.support.collecting import no_collection
from spmd.support.usage import kind_of
from spmd.syntax import parse as _parse
from spmd.syntax.parser import decode

_LONGEST_NAME = 4096
#: Files of at least this many bytes are memory-mapped, so that their constants are not copied.
_MAPPED_FROM = 1 << 20
#: Matches text that is more likely a file's name than a program.
_FILE_NAME = re.compile(r"[^\s{}()<>\"%@]+\.\w{1,12}")
#: Matches the beginning of HLO text: its header, or a computation and the name of its first instruction.
_HLO = re.compile(
    r"(?:\s|//[^\n]*|/\*.*?\*/|(?!))*+(?:HloModule\b|(?!module\b)(?:ENTRY\s+)?%?[\w.\-]++\s*"
    r"(?:\([^{}@]*)?\{\s*(?:ROOT\s+)?%?[\w.\-]++\s*=)",
    re.S,
)


def parse(text: object, name: str = "<string>", *, verify: bool = True) -> Module:
    """The module parsed from `text`: StableHLO's or XLA's HLO text, MLIR bytecode, or what jax.export wrote.

    `text` is a string, bytes, a file that is open for reading, or an object of another library that holds a program: a
    `jax.stages.Lowered` or `Traced`, a `jax.export.Exported`, an MLIR module. `name` stands for the file in errors.

    Raises ParseError where the text or bytes are not a valid program, VerificationError where the program
    breaks a constraint, UsageError for other types of `text`.
    """
    if not isinstance(name, str):
        raise UsageError(f"spmd.parse takes the text's name as a string, got {kind_of(name)}")
    return _parsed(_program(text), name, verify=verify)


def load(path: str | PathLike[str], *, verify: bool = True, vjp: int = 0) -> Module:
    """The module in the file at `path`, in any form that `parse` takes, or in a folder that PyTorch/XLA saved.

    `vjp` selects the gradient of that order, where the file is of jax.export and holds it. Raises what `parse` does,
    and MissingFileError (a FileNotFoundError) or FileError (an OSError) where there is no file to read.
    """
    if not isinstance(vjp, int) or vjp < 0:
        raise UsageError(f"vjp is the order of a gradient, 0 for the function itself, got {vjp!r}")
    if isinstance(path, str | PathLike) and looks_saved(Path(path)):
        from spmd.artifacts.torch_saved import read_saved  # imported lazily, as is each reader except that of text

        module = read_saved(Path(path))
        if verify:
            _verify(module, scoped=True)
        return module
    return _parsed(read_file(path), fspath(path), verify=verify, vjp=vjp)


def _parsed(text: str | bytes | memoryview, name: str, *, verify: bool, vjp: int = 0) -> Module:
    # The objects made here all stay alive: collection in between would free nothing. What the user has NumPy raise is
    # meant for results, and not for constants that are read.
    with no_collection(), np.errstate(all="ignore"):
        from_hlo = None
        module = None if isinstance(text, str) else read_binary(text, name, vjp=vjp)
        if module is None and not isinstance(text, str) and bytes(text[:1]) == b"\n":
            module = from_hlo = _read_hlo_proto(text, name)
        if module is None:
            if not isinstance(text, str):
                from spmd.artifacts.other_kinds import other_kind  # imported lazily: most programs are text

                if (kind := other_kind(text, name)) is not None:
                    raise ParseError(f"{name}: {kind}")
                text = decode(bytes(text), name).text  # the bytes are not needed any more
            from_hlo = _parse_hlo(text, name)
            module = from_hlo or _parse_text(text, name)
        if verify:
            _verify(module, scoped=from_hlo is None)
    return module


def _parse_text(text: str, name: str) -> Module:
    """Return the module of StableHLO's text; the ParseError says what else the text is, where that shows."""
    try:
        return _parse(text, name=name)
    except ParseError:
        from spmd.artifacts.other_kinds import other_text  # imported lazily: most texts are programs

        if (kind := other_text(text, name)) is None:
            raise
        raise ParseError(f"{name}: {kind}") from None


def read_file(path: str | PathLike[str]) -> bytes | memoryview:
    """The bytes of a file; a large one that is not text is memory-mapped."""
    if not isinstance(path, str | PathLike):
        raise UsageError(f"spmd.load takes the path of a file, got {kind_of(path)}")
    try:
        if "\n" in fspath(path):
            raise UsageError("spmd.load takes the path of a file, got text of several lines: was spmd.parse meant?")
        with Path(path).open("rb") as file:
            head = file.read(HEAD)
            if format_of(head) != TEXT and fstat(file.fileno()).st_size >= _MAPPED_FROM:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return head + file.read()
    except FileNotFoundError as error:
        raise MissingFileError(fspath(path), error) from None
    except OSError as error:
        raise FileError(fspath(path), error) from None
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{fspath(path)!r} is no path of a file: {error}") from None


def _program(text: object) -> str | bytes | memoryview:
    """The text or bytes in `text`; UsageError or ParseError, with a suggestion, where there are none."""
    if isinstance(text, str):
        if len(text) < _LONGEST_NAME and _FILE_NAME.fullmatch(text.strip()):
            raise ParseError(f"{text.strip()!r} is no program, but looks like a file's name: was spmd.load meant?")
        return text
    if isinstance(text, bytes | memoryview):
        return text
    if isinstance(text, bytearray):
        return bytes(text)
    if isinstance(text, PathLike):
        raise UsageError(f"spmd.parse takes a program's text, got the path {fspath(text)}: was spmd.load meant?")
    if isinstance(text, Module):
        raise UsageError("spmd.parse takes a program's text, got a module, which needs no parsing")
    program = program_in(text)
    if program is None:
        raise UsageError(f"spmd.parse takes a program's text, got {kind_of(text)}")
    return program


def _read_hlo_proto(data: bytes | memoryview, name: str) -> Module | None:
    """Return the module of a message of XLA's; None for other data, of which texts may begin as messages do."""
    from spmd.builder.hlo.proto import hlo_file, read_hlo_proto  # imported lazily: few files are such

    file = hlo_file(data)
    return None if file is None else read_hlo_proto(file, name)


def _parse_hlo(text: str, name: str) -> Module | None:
    """The module of HLO text; None for other text. The builder, which parses HLO, is imported only if needed."""
    if not _HLO.match(text):
        return None
    from spmd.builder.hlo import parse_hlo  # imported lazily: few texts are HLO

    return parse_hlo(text, name)
