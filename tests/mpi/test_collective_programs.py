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
    for actual, wanted in zip(results, program.expected(rank), strict=True):
        np.testing.assert_array_equal(actual, wanted, strict=True)
    threads = spmd.run_parallel(executable, inputs=[program.inputs(r) for r in range(program.grid.size)])[rank]
    for actual, other in zip(results, threads, strict=True):
        assert actual.tobytes() == other.tobytes()
