"""Machine code for packages that are no back end: LLVM's text becomes functions of this process."""

from __future__ import annotations

from collections.abc import Mapping

from spmd.backends.llvm.jit.interpreter import interpreter_symbols as interpreter_symbols
from spmd.backends.llvm.jit.jit import Library as Library
from spmd.backends.llvm.jit.jit import compile_ir


def load_text(text: str, symbols: Mapping[str, int]) -> Library:
    """Return the functions that `text` defines; `symbols` are the addresses of what it declares."""
    return compile_ir(text, symbols)
