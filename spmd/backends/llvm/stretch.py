"""Stretches of a program as kernels: neighbouring units with a native form become one native function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spmd.backends.llvm import control as _control
from spmd.backends.llvm import products as _products
from spmd.backends.llvm.entry import entry_symbols, entry_text, python_function
from spmd.backends.llvm.function import Buffer, FunctionWriter, supports
from spmd.backends.llvm.functions import link
from spmd.backends.llvm.interrupts import POLL_TEXT, poll_symbols
from spmd.backends.llvm.jit import compile_ir
from spmd.compiler.schedule.fusion import Unit
from spmd.ir import Value

assert _control and _products  # they file their ops in function.NATIVE

_NUMBERS = itertools.count()


def is_native(unit: Unit) -> bool:
    """Whether `unit` has a native form."""
    return unit.fused or supports(unit.roots[0])


def compile_stretch(units: list[Unit], inputs: Sequence[Value], outputs: Sequence[Value]) -> Callable[..., Any]:
    """The kernel of `units`: arrays of `inputs` in; out an array, or a tuple of several, of `outputs`."""
    writer = FunctionWriter("stretch", inputs, outputs)
    targets = [
        Buffer(writer.argument(len(inputs) + place), value.tensor.nbytes, values=[value])
        for place, value in enumerate(outputs)
    ]
    writer.write_results(units, outputs, targets)
    text = writer.finish()
    constants = tuple(np.ascontiguousarray(array) for array in writer.constants)
    count = len(inputs) + len(outputs) + 1 + len(constants)
    linked = link(writer.text.callees.values())
    symbols = {**writer.symbols, **linked.symbols, **entry_symbols()}
    text += "\n" + entry_text("entry", "stretch", count, may_raise=writer.has_loops)
    if writer.has_loops:
        text += POLL_TEXT
        symbols |= poll_symbols()
    library = compile_ir(text, symbols, uses=linked.libraries)
    native = python_function(library.address("entry"), f"stretch{next(_NUMBERS)}", (library, constants))
    return _kernel(native, outputs, writer.arena.size, constants)


def _kernel(
    native: Callable[..., int], outputs: Sequence[Value], arena: int, constants: tuple[Any, ...]
) -> Callable[..., Any]:
    made = [(value.tensor.static_shape, value.tensor.dtype) for value in outputs]
    empty, uint8 = np.empty, np.dtype(np.uint8)
    ((shape, dtype),) = made if len(made) == 1 else (((), uint8),)

    def run(inputs: tuple[Any, ...], results: Sequence[Any]) -> None:
        scratch = empty(arena, uint8)
        if native(*inputs, *results, scratch, *constants):
            # Scalars, and arrays in another order or at odd addresses.
            dense = [np.require(array, requirements=("C", "A")).reshape(np.shape(array)) for array in inputs]
            refused = native(*dense, *results, scratch, *constants)
            assert not refused, "arrays in C order"

    def one(*inputs: Any) -> Any:
        result = empty(shape, dtype)
        run(inputs, (result,))
        return result

    def several(*inputs: Any) -> Any:
        results = tuple([empty(shape, dtype) for shape, dtype in made])
        run(inputs, results)
        return results

    return one if len(made) == 1 else several
