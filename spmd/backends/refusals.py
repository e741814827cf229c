"""Errors for programs that cannot be compiled without this package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from spmd.analysis.collectives import COMMUNICATING
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.fusion import fuse
from spmd.compiler.schedule.schedule import NativeRegion, plan_region
from spmd.compiler.schedule.target import Target
from spmd.errors import CompileError, Diagnostic, NativeCodeError
from spmd.ir import Block, Op, Value
from spmd.types import TensorType, TupleType, Type

#: The constraint of an object file.
NATIVE_ONLY = "an object file contains native code only"
#: Most further ops named in an error of native code.
_MOST_NAMED = 7


def check_types(inputs: Sequence[Value], outputs: Sequence[Value], block: Block) -> None:
    """Raise CompileError for an argument or a result that is no C array."""
    for kind, values in (("argument", inputs), ("result", outputs)):
        for index, value in enumerate(values):
            if not is_plain(value.type):
                location = block.terminator.location if value.defining_op is None else value.defining_op.location
                text = f"{kind} {index} must be an array of static shape, but is {_unlike_c(value.type)}"
                raise CompileError(Diagnostic(location, text))


def _unlike_c(type: Type) -> str:
    """Return a description of a type that C does not have."""
    if isinstance(type, TensorType):
        return f"of dynamic shape, {type}" if not type.is_static else f"quantized, {type}"
    return f"a tuple, {type}" if isinstance(type, TupleType) else f"no array, {type}"


def refuse(op: Op, alone: str = NATIVE_ONLY) -> NoReturn:
    """Raise CompileError that says why `op` cannot be compiled; `alone` is the constraint of the output."""
    raise CompileError(Diagnostic(op.location, f"{_why_not_native(op)}; {alone}", op.name))


def whole_region(block: Block, target: Target, alone: str = NATIVE_ONLY) -> NativeRegion:
    """Return `block`, an entry function after all passes, as one region for `target`; CompileError if that cannot be.

    `alone` is the constraint of the output that an error names.
    """
    inputs, outputs = list(block.arguments), list(block.terminator.operands)
    check_types(inputs, outputs, block)
    units = fuse(block, outputs)
    for unit in units:
        if not unit.fused and not target.supports(unit.outputs[0]):
            refuse(unit.outputs[0], alone)
    return plan_region(units, inputs, outputs, target)


@contextmanager
def naming(ops: Sequence[Op]) -> Iterator[None]:
    """Add the names and locations of `ops`, and advice, to a NativeCodeError raised within the `with`."""
    try:
        yield
    except NativeCodeError as error:
        first, *others = dict.fromkeys(ops)
        shown = [f"  with {op.name} at {op.location}" for op in others[:_MOST_NAMED]]
        if len(others) > _MOST_NAMED:
            shown.append(f"  and {len(others) - _MOST_NAMED} more ops")
        advice = 'This is a fault of spmd, not of the program; backends=("numpy",) runs it meanwhile.'
        text = error.diagnostics[0].message
        raise NativeCodeError(Diagnostic(first.location, text, first.name, notes=(*shown, advice))) from None


def _why_not_native(op: Op) -> str:
    """Return why an op cannot be compiled to run without this package."""
    types = [value.type for value in (*op.operands, *op.results)]
    unlike = next((type for type in types if not is_plain(type)), None)
    if op.name in COMMUNICATING or op.name in ("stablehlo.infeed", "stablehlo.outfeed"):
        reason = "it communicates with other processes"
    elif op.name == "stablehlo.custom_call":
        reason = "its target must be a C function, void (void* out, void** in), not a built-in or Python function"
    elif unlike is not None:
        reason = f"a value of it is {_unlike_c(unlike)}"
    elif op.name == "stablehlo.fft":
        reason = "a transform of this length has no native code"
    elif any(isinstance(type, TensorType) and type.dtype.kind == "c" for type in types):
        reason = "it has no native code for complex numbers"
    else:
        reason = "it has no native code"
    return reason
