"""Custom calls of LAPACK routines and of C functions as LLVM IR.

C functions have the signature of spmd.backends.c_targets: `void target(void* out, void** in)`. A process calls the
registered address, an object file the symbol of the target's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd.analysis.custom_calls import is_of_c
from spmd.backends.c_targets import aliased, check_linked, check_version, is_plain_call, result_of
from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import PlanTarget, native
from spmd.backends.llvm.ops.lapack import is_lapack_call, plan_lapack_call, write_lapack_call
from spmd.compiler.schedule.buffers import nbytes
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.dialects.custom_call import output_type
from spmd.ir import Op
from spmd.types import TupleType, Type


def _is_native_call(op: Op) -> bool:
    return is_lapack_call(op) or (is_of_c(op["call_target_name"]) and is_plain_call(op))


def _plan(op: Op, machine: PlanTarget, image_bytes: int | None) -> LibraryPlan:
    return plan_lapack_call(op) if is_lapack_call(op) else LibraryPlan()


@native("stablehlo.custom_call", _is_native_call, _plan)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    (write_lapack_call if is_lapack_call(step.op) else _write_c_call)(writer, step)


def _write_c_call(writer: FunctionEmitter, step: LibraryCall) -> None:
    """Emit a call of a C function; aliased results are initialized with the operand's elements and passed instead."""
    op, text = step.op, writer.text
    check_version(op)
    if writer.is_linked:
        check_linked(op, writer.name.removesuffix(".body"))
    inputs = [writer.pointer(value) for value in op.operands]
    outputs = [writer.pointer(value) for value in op.results]
    for place, (index, _) in aliased(op).items():
        pointer = outputs[result_of(op, place)]
        writer.copy(pointer, inputs[index], nbytes(op.operands[index]))
        inputs[index] = pointer
    taken, given = _table(writer, inputs), _address(writer, output_type(op), iter(outputs))
    symbol = writer.c_target(op["call_target_name"])
    text.declarations[f"declare void @{symbol}(ptr, ptr)"] = None
    text.call(f"call void @{symbol}(ptr {given}, ptr {taken})")


def _address(writer: FunctionEmitter, type: Type, leaves: Iterator[str]) -> str:
    """Return the address of a value of `type` with arrays at `leaves`."""
    if not isinstance(type, TupleType):
        return next(leaves)
    return _table(writer, [_address(writer, part, leaves) for part in type.types])


def _table(writer: FunctionEmitter, pointers: Sequence[str]) -> str:
    """Return the address of an array of `pointers`."""
    text = writer.text
    table = text.allocate(f"[{max(len(pointers), 1)} x ptr]", 8)
    for place, pointer in enumerate(pointers):
        text.line(f"store ptr {pointer}, ptr {text.value(f'getelementptr ptr, ptr {table}, i64 {place}')}")
    return table
