"""Products in which subnormal numbers count as zero.

A processor of the x86 family takes a hundred times as long for a product of which an operand or the result is
subnormal. Gradients behind a softmax that is almost certain are full of such numbers. StableHLO specification,
"dot_general" and "convolution", leaves the default precision to who runs a program; higher ones keep all numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit.processor import host
from spmd.ir import Op

#: Of the x86 family's control register: subnormal operands are zero, and so are results.
_OPERANDS, _RESULTS = 1 << 6, 1 << 15


def flushes(op: Op) -> bool:
    """Whether subnormal numbers may count as zero in `op`, which has a precision_config."""
    precisions = op["precision_config"]
    return all(precision == "DEFAULT" for precision in precisions or ())


@contextmanager
def flushed(text: FunctionText, where: bool) -> Iterator[None]:
    """What is written within runs with subnormal numbers as zeros, if `where`; the thread's own mode comes back."""
    if not where or not host().triple.startswith("x86_64"):
        yield
        return
    for name in ("stmxcsr", "ldmxcsr"):
        text.declarations[f"declare void @llvm.x86.sse.{name}(ptr)"] = None
    before, within = text.allocate("i32", align=4), text.allocate("i32", align=4)
    text.line(f"call void @llvm.x86.sse.stmxcsr(ptr {before})")
    mode = text.value(f"load i32, ptr {before}")
    text.line(f"store i32 {text.value(f'or i32 {mode}, {_OPERANDS | _RESULTS}')}, ptr {within}")
    text.line(f"call void @llvm.x86.sse.ldmxcsr(ptr {within})")
    yield
    text.line(f"call void @llvm.x86.sse.ldmxcsr(ptr {before})")
