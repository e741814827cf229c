"""Why a program is refused as code that runs without this package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from spmd.analysis.collectives import COMMUNICATING
from spmd.compiler.schedule.fusibility import is_plain
from spmd.errors import CompileError, Diagnostic, NativeCodeError
from spmd.ir import Block, Op, Value
from spmd.types import TensorType, TupleType, Type

#: Ops that an error of their native code names, beside the first.
_MOST_NAMED = 7


def check_types(inputs: Sequence[Value], outputs: Sequence[Value], block: Block) -> None:
    """CompileError for an argument or a result that is no array as C has them."""
    for kind, values in (("argument", inputs), ("result", outputs)):
        for index, value in enumerate(values):
            if not is_plain(value.type):
                location = block.terminator.location if value.defining_op is None else value.defining_op.location
                text = f"{kind} {index} is {_unlike_c(value.type)}, and a function of C takes arrays of known sizes"
                raise CompileError(Diagnostic(location, text))


def _unlike_c(type: Type) -> str:
    """What is not C's about a type, with the type."""
    if isinstance(type, TensorType):
        return f"of dynamic shape, {type}" if not type.is_static else f"quantized, {type}"
    return f"a tuple, {type}" if isinstance(type, TupleType) else f"no array, {type}"


def refuse(op: Op, alone: str = "an object file holds native code alone") -> NoReturn:
    """CompileError that says why `op` has no native form; `alone`: what holds what has one."""
    raise CompileError(Diagnostic(op.location, f"{_why_not_native(op)}; {alone}", op.name))


@contextmanager
def naming(ops: Sequence[Op]) -> Iterator[None]:
    """Have a NativeCodeError of the code of `ops` say which ops these are, and where, and what to do."""
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
    """What of an op keeps it from being native code that runs without this package."""
    types = [value.type for value in (*op.operands, *op.results)]
    unlike = next((type for type in types if not is_plain(type)), None)
    if op.name in COMMUNICATING or op.name in ("stablehlo.infeed", "stablehlo.outfeed"):
        reason = "it communicates with other processes"
    elif op.name == "stablehlo.custom_call":
        reason = "its target is built in, or a function of Python; one of C, void (void* out, void** in), can be called"
    elif unlike is not None:
        reason = f"a value of it is {_unlike_c(unlike)}"
    elif op.name == "stablehlo.fft":
        reason = "a transform of this length has no native form"
    elif any(isinstance(type, TensorType) and type.dtype.kind == "c" for type in types):
        reason = "for complex numbers it has no native form"
    else:
        reason = "it has no native form"
    return reason
