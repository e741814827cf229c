"""Pieces of one array beside one another, along a cut dimension: each element of a block comes from its own run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

import spmd
from tests.partitioner.running import run_parts

#: A piece: elements [start, limit) of the array.
Piece = tuple[int, int]
SIZE = 7

IDENTITIES = [[(0, cut), (cut, SIZE)] for cut in range(1, SIZE)]
IN_THREE = [[(0, low), (low, high), (high, SIZE)] for low, high in combinations(range(1, SIZE), 2)]
SWAPPED = [[pieces[1], pieces[0]] for pieces in IDENTITIES] + [[c, a, b] for a, b, c in IN_THREE]
WITH_ONE_LEFT_OUT = [[(0, cut), (cut + 1, SIZE)] for cut in range(1, SIZE - 1)]
OVERLAPPING = [[(0, cut + 2), (cut, SIZE)] for cut in range(1, SIZE - 2)] + [[(1, 4), (1, 4)], [(3, 6), (2, 5), (0, 2)]]
OF_NOTHING = [[(0, 3), (3, 3), (3, SIZE)], [(2, 2), (0, SIZE)], [(0, SIZE), (SIZE, SIZE)], [(4, 4), (4, 4)]]
SINGLE = [[(k, k + 1) for k in order] for order in ([*range(SIZE)], [*reversed(range(SIZE))], [0, 0, 6, 3, 3, 1])]
KINDS = {
    "identities": IDENTITIES, "in three": IN_THREE, "swapped": SWAPPED, "with one left out": WITH_ONE_LEFT_OUT,
    "overlapping": OVERLAPPING, "of nothing": OF_NOTHING, "single elements": SINGLE,
}  # fmt: skip


def program(joined: Sequence[Sequence[Piece]], devices: int, new: bool) -> str:
    """Return a program with one result for each entry of `joined`; with `new`, two other elements stand in between."""
    lines, results, types = [], [], []
    for number, pieces in enumerate(joined):
        names, shapes = [], []
        for place, (start, limit) in enumerate(pieces):
            name, shape = f"%s{number}_{place}", f"tensor<{limit - start}xi32>"
            lines.append(f"{name} = stablehlo.slice %x [{start}:{limit}] : (tensor<{SIZE}xi32>) -> {shape}")
            names.append(name)
            shapes.append(shape)
        if new:
            names.insert(1, "%new")
            shapes.insert(1, "tensor<2xi32>")
        extent = sum(limit - start for start, limit in pieces) + 2 * new
        types.append(f"tensor<{extent}xi32>")
        results.append(f"%r{number}")
        lines.append(
            f"%r{number} = stablehlo.concatenate {', '.join(names)}, dim = 0 : ({', '.join(shapes)}) -> {types[-1]}"
        )
    sharded = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
    outputs = ", ".join(f"{type} {sharded}" for type in types)
    body = "\n".join(lines)
    return f"""sdy.mesh @mesh = <["x"={devices}]>
func.func @main(%x: tensor<{SIZE}xi32> {sharded}, %new: tensor<2xi32>) -> ({outputs}) {{
{body}
return {", ".join(results)} : {", ".join(types)}
}}"""


@pytest.mark.sampled(7)
@pytest.mark.parametrize("devices", [2, 5, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_one_array(kind: str, devices: int) -> None:
    x, new = np.arange(1, SIZE + 1, dtype=np.int32), np.array([-1, -2], np.int32)
    for with_new in (False, True):
        results = run_parts(program(KINDS[kind], devices, with_new), [x, new], devices)
        for pieces, result in zip(KINDS[kind], results, strict=True):
            expected = [x[start:limit] for start, limit in pieces]
            if with_new:
                expected.insert(1, new)
            np.testing.assert_array_equal(result, np.concatenate(expected), err_msg=f"{pieces} on {devices}")


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_pieces_of_one_array_stacked(backends: tuple[str, ...]) -> None:
    joined = [*IDENTITIES, *SWAPPED, *OVERLAPPING]
    module = spmd.parse(program(joined, 2, True))
    simulation = spmd.simulate(module, spmd.ProcessGrid(1, 2), backends=backends)
    x, new = np.arange(1, SIZE + 1, dtype=np.int32), np.array([-1, -2], np.int32)
    stacked = simulation(*simulation.shard(x, new))
    for pieces, result in zip(joined, simulation.unshard(*stacked), strict=True):
        first, *others = [x[start:limit] for start, limit in pieces]
        np.testing.assert_array_equal(result, np.concatenate([first, new, *others]), err_msg=str(pieces))


def test_an_empty_slice_with_a_stride() -> None:
    text = """sdy.mesh @mesh = <["x"=6]>
func.func @main(%x: tensor<3x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> tensor<3x0xf32> {
  %0 = stablehlo.slice %x [0:3, 2:2:2] : (tensor<3x2xf32>) -> tensor<3x0xf32>
  return %0 : tensor<3x0xf32>
}"""
    (result,) = run_parts(text, [np.ones((3, 2), np.float32)], 6)
    assert result.shape == (3, 0)
