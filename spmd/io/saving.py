"""Writing programs to bytes or to a file, in any format that can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path

from spmd.artifacts.bytecode import write_bytecode, write_portable
from spmd.artifacts.encodings.fields import Version
from spmd.artifacts.vhlo.ops import CURRENT, OLDEST, parse_version
from spmd.errors import UsageError
from spmd.ir import Module
from spmd.support.files import write_file
from spmd.support.usage import check_module, kind_of
from spmd.version import __version__

_VERSION = re.compile(r"\d{1,4}\.\d{1,4}(\.\d{1,4})?", re.ASCII)
_PRODUCER = f"spmd_{__version__}"


def serialize(module: Module, *, version: str = "current") -> bytes:
    """The module as a portable artifact: bytecode of VHLO, which StableHLO's readers of that version or later read.

    `version` is a version of VHLO from 0.9.0 on, `"current"` or `"minimum"`. Raises ConversionError, which names the
    op, where that version cannot express it. Source: StableHLO, docs/compatibility.md.
    """
    check_module(module, "spmd.serialize")
    return write_portable(module, _version(version), _PRODUCER)


def _version(text: str) -> Version:
    if not isinstance(text, str):
        raise UsageError(f"a version is a string such as '1.0.0', 'current' or 'minimum', got {kind_of(text)}")
    if text in ("current", "minimum"):
        return CURRENT if text == "current" else OLDEST
    if not _VERSION.fullmatch(text):
        raise UsageError(f"a version is a string such as '1.0.0', 'current' or 'minimum', got {text!r}")
    version = parse_version(text)
    if not OLDEST <= version <= CURRENT:
        known = f"{OLDEST[0]}.{OLDEST[1]} to {CURRENT[0]}.{CURRENT[1]}"
        raise UsageError(f"versions of VHLO go from {known}, got {text}")
    return version


def _hlo(module: Module) -> bytes:
    from spmd.builder.hlo import print_hlo  # imported lazily: the builder is large, and HLO is rarely written

    return print_hlo(module).encode("utf-8", "surrogateescape")


def _text(module: Module, *, generic: bool = False) -> bytes:
    return module.to_string(generic=generic).encode("utf-8", "surrogateescape")


#: The formats that a module can be written in.
FORMATS: dict[str, Callable[[Module], bytes]] = {
    "text": _text,
    "generic": lambda module: _text(module, generic=True),
    "bytecode": lambda module: write_bytecode(module, producer=_PRODUCER),
    "vhlo": serialize,
    "hlo": _hlo,
}
#: Formats by file extension; without one it is text.
_BY_NAME = {
    "": "text",
    ".mlir": "text",
    ".txt": "text",
    ".stablehlo": "text",
    ".mlirbc": "bytecode",
    ".bc": "bytecode",
    ".vhlo": "vhlo",
    ".hlo": "hlo",
}


def render(module: Module, format: str) -> bytes:
    """The module in `format`: text, generic, bytecode, vhlo, vhlo@1.0.0 or hlo."""
    name, at, version = format.partition("@")
    if name not in FORMATS or (at and name != "vhlo"):
        raise UsageError(f"formats are {', '.join(FORMATS)} and vhlo@VERSION, got {format!r}")
    return serialize(module, version=version) if at else FORMATS[name](module)


def save(module: Module, path: str | PathLike[str], *, format: str | None = None) -> None:
    """Writes the module to the file at `path`.

    `format` is text, generic, bytecode, vhlo, vhlo@VERSION or hlo; the default follows the extension: .mlirbc and
    .bc are bytecode, .vhlo a portable artifact, .hlo XLA's text, .mlir, .txt, .stablehlo and none StableHLO's text.
    Raises UsageError for any other extension without a format, and OutputError, an OSError, where the file cannot be
    written; an existing file is then unchanged.
    """
    check_module(module, "spmd.save")
    data = render(module, format or _format_of(fspath(path)))
    write_file(path, data)


def _format_of(path: str) -> str:
    """Return the format that the end of `path` names; UsageError where it names none."""
    suffix = Path(path).suffix
    if suffix not in _BY_NAME:
        known = ", ".join(filter(None, _BY_NAME))
        raise UsageError(f"{path}: programs are written to {known}; a file of another kind needs a format")
    return _BY_NAME[suffix]
