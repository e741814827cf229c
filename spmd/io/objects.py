"""Programs held by objects of other libraries, recognized by their methods: no library is imported for them.

`jax.stages.Traced` can be lowered, `Lowered` gives its module, `jax.export.Exported` serializes itself, an MLIR module
of any binding writes its bytecode or its text, a file can be read.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any


def program_in(value: object) -> str | bytes | None:
    """The text or bytes of the program that `value` holds; None when it holds none that is known."""
    read = getattr(value, "read", None)
    if callable(read):
        content = read()
        return content if isinstance(content, str | bytes) else bytes(content)
    lower = getattr(value, "lower", None)
    if callable(lower) and hasattr(value, "jaxpr"):
        value = lower()
    if hasattr(value, "mlir_module_serialized"):
        return _exported(value)
    compiler_ir = getattr(value, "compiler_ir", None)
    if callable(compiler_ir):
        with suppress(TypeError, ValueError, NotImplementedError):  # the text is StableHLO in any case
            value = compiler_ir("stablehlo")
    write_bytecode = getattr(getattr(value, "operation", value), "write_bytecode", None)
    if callable(write_bytecode):
        buffer = io.BytesIO()
        write_bytecode(buffer)
        return buffer.getvalue()
    for name in ("as_text", "get_asm"):
        write = getattr(value, name, None)
        if callable(write):
            text = write()
            return text if isinstance(text, str | bytes) else None
    return None


def _exported(value: Any) -> bytes:
    """The object serialized, with its argument trees; the module alone where it cannot be serialized."""
    try:
        return bytes(value.serialize())
    except (ImportError, ValueError):
        return bytes(value.mlir_module_serialized)
