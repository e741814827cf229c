"""Describes files and texts that are no programs, and how to get a program from their producer.

Sources: the PT2 Archive Spec of PyTorch's documentation; torch.save and torch.jit.save, which write zip archives with a
data.pkl; the first bytes of NumPy's, HDF5's and safetensors' files.
"""

from __future__ import annotations

import io
import re
import zipfile

from spmd.artifacts.stream import Buffer

#: File formats by their first bytes.
_STARTS = {
    b"\x93NUMPY": "an array file of NumPy",
    b"PK\x05\x06": "an empty zip archive",
    b"\x1f\x8b": "compressed by gzip",
    b"\x7fELF": "machine code",
    b"\x89HDF": "an HDF5 file, as Keras writes",
    b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.": "torch.save",
}
_ZIP = b"PK\x03\x04"
_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_MOST_HEADER = 100 << 20  # the largest size in bytes of a safetensors header, which precedes it
_SAVE = "torch_xla.stablehlo.exported_program_to_stablehlo(exported).save('model')"
_EXPORT = "exported = torch.export.export(model, example_inputs)  # model: the nn.Module"
#: Descriptions of PyTorch's files, and the Python line that saves StableHLO instead.
_TORCH = {
    "torch.export.save": ("a program that torch.export saved", "exported = torch.export.load({name!r})"),
    "AOTInductor": ("machine code that AOTInductor packaged", _EXPORT + " that was compiled"),
    "torch.jit.save": ("a TorchScript program", _EXPORT + " that was scripted"),
    "torch.save": ("what torch.save pickled, weights or a module", _EXPORT + " with these weights"),
}


_PYTHON = (
    "Python, not a program: `python {name}` runs it, `spmd launch -n 2 -- python {name}` on two ranks; "
    "spmd.jax.export makes a program of a JAX function"
)
#: Formats of texts, by the start of the text or of one of its lines.
_TEXTS = {
    r"\A\s*[\[{]\s*[\[\]{}\"\d]": "JSON, not a program",
    r"\A\s*<[!?/a-zA-Z]": "a page or XML, not a program",
    r"^\s*#include\b": "C, not a program",
    r"^(?:import [\w.]+(?: as \w+)?$|from [\w.]+ import \w|(?:async )?def \w+\(|class \w+[:(]|print\()": _PYTHON,
}


def other_text(text: str, name: str) -> str | None:
    """Return a description of a text that is no program, or None. ``name`` is its file's name."""
    kinds = (kind for pattern, kind in _TEXTS.items() if re.search(pattern, text, re.MULTILINE))
    return next((kind.format(name=name) for kind in kinds), None)


def other_kind(data: Buffer, name: str) -> str | None:
    """Return a description of a file that is no program, and how to get one, if known; else None."""
    head = bytes(data[:64])
    kind = _of_archive(data) if head.startswith(_ZIP) else _of_start(head)
    if kind not in _TORCH:
        return None if kind is None else f"{kind}, not a program"
    called, line = _TORCH[kind]
    lines = f"  {line.format(name=name)}\n  {_SAVE}"
    return f"{called}, not StableHLO; two lines with PyTorch/XLA make a folder model that is read:\n{lines}"


def _of_start(head: bytes) -> str | None:
    for start, kind in _STARTS.items():
        if head.startswith(start):
            return kind
    if head.startswith(_PICKLES):
        return "a pickle of Python's"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") <= _MOST_HEADER:
        return "weights in the safetensors format"
    return None


def _of_archive(data: Buffer) -> str:
    """Return a description of a zip archive, by its names, most of which are in a folder named after the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except Exception:  # zipfile raises various errors for damaged archives; the kind is known anyway
        return "a zip archive, which is damaged"
    inner = {name.partition("/")[2] for name in names}
    if names and all(name.endswith(".npy") for name in names):
        return "arrays of NumPy (.npz)"
    if any(name.startswith("models/") for name in inner) or "serialized_exported_program.json" in {*names, *inner}:
        return "torch.export.save"
    if any(name.startswith("data/aotinductor/") for name in inner):
        return "AOTInductor"
    if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
        return "torch.jit.save"
    return "torch.save" if "data.pkl" in inner else "a zip archive"
