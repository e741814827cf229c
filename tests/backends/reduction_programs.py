"""Programs of every reduction between processes on one element type: monoids, and regions that are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import spmd
from spmd.support.arrays import Array
from spmd.types import element_type_of
from tests.collectives.every_reduction import DTYPES, differs, is_integer, values_of

#: A type in which sums of another type are formed; others are summed as they are.
_PROMOTED = {"bf16": "f32", "f16": "f32", "f32": "f64", "complex<f32>": "complex<f64>", "i8": "i16", "ui4": "ui8"}
#: Regions on %a and %b, of type T, that are no one op.
_REGIONS = {
    "twice": "%d = stablehlo.add %a, %a : T\n%r = stablehlo.add %d, %b : T",
    "larger product": "%d = stablehlo.multiply %a, %b : T\n%r = stablehlo.maximum %d, %b : T",
    "swapped": "%r = stablehlo.add %b, %a : T",
}
_IN_F32 = """%c = stablehlo.convert %a : (T) -> tensor<f32>
%d = stablehlo.convert %b : (T) -> tensor<f32>
%s = stablehlo.add %c, %d : tensor<f32>
%r = stablehlo.convert %s : (tensor<f32>) -> T"""
TYPES = {str(element_type_of(dtype)): dtype for dtype in DTYPES}


def _regions(element: str) -> dict[str, str]:
    dtype = TYPES[element]
    kinds = ["add", "multiply", "minimum", "maximum"]
    kinds += ["and", "or", "xor"] * (dtype == np.bool_ or is_integer(dtype))
    regions = {kind: f"%r = stablehlo.{kind} %a, %b : T" for kind in kinds} | _REGIONS
    if element.startswith(("f", "bf")) and element != "f64":
        regions["add in f32"] = _IN_F32
    return regions


def program(element: str, groups: Sequence[Sequence[int]], shape: tuple[int, ...], scattered: int | None) -> str:
    """Return the program of all reductions of a tensor of `shape`, whose dimension `scattered` a reduce_scatter cuts.

    Groups of several sizes are filled up with -1, and nothing is scattered.
    """
    longest = max(map(len, groups))
    table = [[*group, *[-1] * (longest - len(group))] for group in groups]
    told = f"replica_groups = dense<{table}> : tensor<{len(table)}x{longest}xi64>"
    whole, lines, names, types = _tensor(element, shape), [], [], []

    def reduce(op: str, body: str, result: str, of: str, more: str = "") -> None:
        names.append(f"%v{len(names)}")
        types.append(result)
        scalar = f"tensor<{of}>"
        lines.append(
            f'{names[-1]} = "stablehlo.{op}"(%x) <{{{told}{more}}}> ({{\n^bb0(%a: {scalar}, %b: {scalar}):\n'
            f"{body.replace(': T', f': {scalar}').replace('(T)', f'({scalar})').replace('-> T', f'-> {scalar}')}\n"
            f"stablehlo.return %r : {scalar}\n}}) : ({whole}) -> {result}"
        )

    for body in _regions(element).values():
        reduce("all_reduce", body, whole, element)
        if scattered is not None:
            part = tuple(size // longest if d == scattered else size for d, size in enumerate(shape))
            more = f", scatter_dimension = {scattered} : i64"
            reduce("reduce_scatter", body, _tensor(element, part), element, more)
    wide = "bf16" if element[:2] in ("f4", "f6", "f8") else _PROMOTED.get(element)
    if wide is not None:
        reduce("all_reduce", "%r = stablehlo.add %a, %b : T", _tensor(wide, shape), wide)
    return "\n".join(
        [
            f"func.func @main(%x: {whole}) -> ({', '.join(types)}) {{",
            *lines,
            f"return {', '.join(names)} : {', '.join(types)}\n}}",
        ]
    )


def _tensor(element: str, shape: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def operands(element: str, shape: tuple[int, ...], count: int, random: np.random.Generator) -> list[Array]:
    """Return an operand for each of `count` processes: of all values of the type, or of a few that add up exactly."""
    dtype = TYPES[element]
    pool = values_of(dtype)
    if random.integers(2):
        with np.errstate(all="ignore"):
            pool = np.array([0.25, 0.5, 1, 1.5, 2, 3, -0.0, -1, -3]).astype(dtype)
    return [pool[random.integers(0, len(pool), shape)] for _ in range(count)]


def expect_alike(results: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]], what: str) -> None:
    """Assert that two ways to run a program give each process the same bits; one NaN is as good as another."""
    for process, (mine, other) in enumerate(zip(results, expected, strict=True)):
        for number, (one, two) in enumerate(zip(mine, other, strict=True)):
            assert not differs(np.asarray(one), np.asarray(two)), f"{what}: result {number} of process {process}"


def run(text: str, arrays: Sequence[Array], **options: Any) -> Sequence[Sequence[Any]]:
    """Return the results of every process, as many as there are `arrays`."""
    grid = spmd.ProcessGrid(len(arrays), 1)
    return spmd.run_parallel(spmd.parse(text), grid, [[array] for array in arrays], **options)
