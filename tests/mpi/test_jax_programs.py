"""Programs that JAX lowers under shard_map, on MPI ranks: JAX's results."""

import tempfile
from functools import cache
from pathlib import Path

import pytest

import spmd
from tests.jax_programs import NAMES, JaxProgram, close, export
from tests.mpi.ranks import meet

pytestmark = pytest.mark.mpi


@cache
def exported() -> dict[str, JaxProgram] | None:
    """Rank 0 asks JAX, for all."""
    from mpi4py import MPI

    programs_here = None
    if MPI.COMM_WORLD.rank == 0:
        try:
            import jax  # noqa: F401
        except ImportError:
            pass
        else:
            with tempfile.TemporaryDirectory() as folder:
                programs_here = export(MPI.COMM_WORLD.size, Path(folder))
    meet(MPI.COMM_WORLD)
    result: dict[str, JaxProgram] | None = MPI.COMM_WORLD.bcast(programs_here)
    return result


@pytest.mark.parametrize("name", NAMES)
def test_ranks_give_what_jax_gives(name: str) -> None:
    programs = exported()
    if programs is None:
        pytest.skip("JAX is not installed")
    program = programs[name]
    executable = spmd.compile(spmd.parse(program.text, name=name))
    results = executable.unshard(*executable(*executable.shard(*program.arguments)))
    for actual, expected in zip(results, program.results, strict=True):
        assert close(actual, expected)
