"""Programs that consist of one native function, for callers that pass addresses instead of arrays."""

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
    """A program as `function` with its arguments.

    `sources` are its inputs: a parameter's number, or a constant array. `results` maps its results to those of the
    program. `over` maps results to the parameters that they overwrite; these are among the `donated` ones, which belong
    to the program once it is called.
    """

    function: NativeFunction
    sources: Sequence[int | Array]
    results: Sequence[int]
    over: Mapping[int, int]
    donated: frozenset[int]


def native_program(plan: Plan) -> NativeProgram | None:
    """Return `plan` as a native program; None if it has other steps, or returns parameters."""
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
