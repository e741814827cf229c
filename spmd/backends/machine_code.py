"""Compilation of LLVM IR to functions of this process, for packages that are no back ends."""

from __future__ import annotations

from spmd.backends.llvm.jit.interpreter import interpreter_symbols as interpreter_symbols
from spmd.backends.llvm.jit.jit import Library as Library
from spmd.backends.llvm.jit.jit import compile_ir as compile_ir
