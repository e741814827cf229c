"""Programs that are one native function, for callers that have addresses in place of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spmd.backends.native import NativeFunction
from spmd.compiler.plan.steps import Plan
from spmd.ir import Value
from spmd.support.arrays import Array


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A program as `function`, and what this is to be called with.

    `sources` are its inputs: a parameter's number, or a constant array. `results` has each result's place among those
    of the program. A result in `over` is written over the parameter of that number. Parameters in `donated`, those
    among them, are the program's once it is called.
    """

    function: NativeFunction
    sources: Sequence[int | Array]
    results: Sequence[int]
    over: Mapping[int, int]
    donated: frozenset[int]


def native_program(plan: Plan) -> NativeProgram | None:
    """Return `plan` as a native program; None of one that has other steps, or gives what it was given."""
    if len(plan.steps) != 1 or (native := plan.steps[0].native) is None or native.function is None:
        return None
    (step,) = plan.steps
    if len(step.outputs) != len(plan.results) or {*step.outputs} != {*plan.results}:
        return None
    numbers = {value: index for index, value in enumerate(plan.parameters)}

    def source(value: Value) -> int | Array:
        return numbers[value] if value in numbers else np.ascontiguousarray(plan.constants[value])

    sources = [source(value) for value in step.inputs]
    over = {result: sources[operand] for result, operand in native.function.over.items()}
    parameters = {result: place for result, place in over.items() if isinstance(place, int) and place in plan.donated}
    if len(parameters) < len(over):
        return None
    results = [plan.results.index(value) for value in step.outputs]
    return NativeProgram(native.function, sources, results, parameters, plan.donated)
