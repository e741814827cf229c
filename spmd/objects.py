"""Programs that objects of other libraries hold, known by what they can do: nothing is imported for them.

`jax.stages.Traced` can be lowered, `Lowered` gives its module, `jax.export.Exported` serializes itself, an MLIR module
of any binding writes its bytecode or its text, a file can be read.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any


def program_in(value: Any) -> str | bytes | None:
    """The text or bytes of the program that `value` holds; None when it holds none that is known."""
    if callable(getattr(value, "read", None)):
        content = value.read()
        return content if isinstance(content, str | bytes) else bytes(content)
    if callable(getattr(value, "lower", None)) and hasattr(value, "jaxpr"):
        value = value.lower()
    if hasattr(value, "mlir_module_serialized"):
        return _exported(value)
    if callable(getattr(value, "compiler_ir", None)):
        with suppress(TypeError, ValueError, NotImplementedError):  # its text is StableHLO all the same
            value = value.compiler_ir("stablehlo")
    operation = getattr(value, "operation", value)
    if callable(getattr(operation, "write_bytecode", None)):
        buffer = io.BytesIO()
        operation.write_bytecode(buffer)
        return buffer.getvalue()
    for name in ("as_text", "get_asm"):
        if callable(getattr(value, name, None)):
            text = getattr(value, name)()
            return text if isinstance(text, str | bytes) else None
    return None


def _exported(value: Any) -> bytes:
    """What the object writes of itself, trees and all; its module alone where it cannot write."""
    try:
        return bytes(value.serialize())
    except (ImportError, ValueError):
        return bytes(value.mlir_module_serialized)
