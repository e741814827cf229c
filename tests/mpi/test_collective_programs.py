"""Programs of collectives on MPI ranks: the specification's results, and the bits that threads give."""

import numpy as np
import pytest

import spmd
from tests.backends.collective_programs import PROGRAMS

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("options", [{}, {"reproducible": True}, {"check_collectives": True}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_give_what_the_specification_says(name: str, options: dict[str, bool]) -> None:
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    program = PROGRAMS[name]
    executable = spmd.compile(spmd.parse(program.text, name="test.mlir"), program.grid, **options)
    results = executable(*program.inputs(rank))
    for actual, desired in zip(results, program.expected(rank), strict=True):
        np.testing.assert_array_equal(actual, desired, strict=True)
    one = list(PROGRAMS).index(name) % MPI.COMM_WORLD.size
    if of_ranks := MPI.COMM_WORLD.gather([array.tobytes() for array in results], one):  # on one of the ranks
        threads = spmd.run_parallel(executable, inputs=[program.inputs(r) for r in range(program.grid.size)])
        assert of_ranks == [[array.tobytes() for array in each] for each in threads]


def test_what_overlaps_gives_the_same_bits() -> None:
    """Sums of normal numbers by all ranks, whose bits show how they were associated: in memory, and by MPI.

    Intel MPI does not repeat the bits of its own sums unless I_MPI_CBWR is set, so reproducible ones are compared.
    """
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    reproducible = "Intel" in MPI.Get_library_version()
    text = OVERLAPPING.replace("RANKS", ", ".join(map(str, range(size)))).replace("SIZE", str(size))
    rng = np.random.default_rng(rank)
    x, y = rng.normal(size=(1025, 1024)).astype(np.float32), rng.normal(size=(512, 512)).astype(np.float32)
    plain, overlapped = (
        spmd.compile(spmd.parse(text), spmd.ProcessGrid(size, 1), overlap=choice, reproducible=reproducible)
        for choice in (False, True)
    )
    for _ in range(3):
        expected = plain(x, y)
        assert [array.tobytes() for array in overlapped(x, y)] == [array.tobytes() for array in expected]


OVERLAPPING = """
func.func @main(%x: tensor<1025x1024xf32>, %y: tensor<512x512xf32>)
    -> (tensor<1025x1024xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %0 = stablehlo.multiply %x, %x : tensor<1025x1024xf32>
  %1 = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0]
    : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %2 = stablehlo.tanh %1 : tensor<512x512xf32>
  %3 = stablehlo.dot_general %2, %y, contracting_dims = [1] x [0]
    : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %4 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[RANKS]]> : tensor<1xSIZExi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<1025x1024xf32>) -> tensor<1025x1024xf32>
  %5 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<[[RANKS]]> : tensor<1xSIZExi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<512x512xf32>) -> tensor<512x512xf32>
  return %4, %5, %3 : tensor<1025x1024xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}
"""
