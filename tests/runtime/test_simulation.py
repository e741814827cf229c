"""A simulation gives what processes that are threads give, bit for bit but for products."""

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array
from tests.backends.collective_programs import PROGRAMS
from tests.backends.modules import reference
from tests.compiler.stacking import same_bits
from tests.jax_programs import NAMES, JaxProgram, close


def stacked_inputs(inputs: list[tuple[Array, ...]]) -> list[Array]:
    return [np.stack(column) for column in zip(*inputs, strict=True)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_collectives_give_what_the_specification_says(name: str) -> None:
    program = PROGRAMS[name]
    simulation = spmd.simulate(spmd.parse(program.text), program.grid)
    results = simulation(*stacked_inputs([program.inputs(rank) for rank in range(program.grid.size)]))
    spmd.verify(simulation.module)
    for rank in range(program.grid.size):
        for part, desired in zip(results, program.expected(rank), strict=True):
            assert same_bits(np.asarray(part[rank]), np.asarray(desired)), rank


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", NAMES)
def test_jax_programs_give_what_jax_gives(exported: dict[str, JaxProgram], name: str) -> None:
    program = exported[name]
    simulation = spmd.simulate(spmd.parse(program.text, name=name))
    spmd.verify(simulation.module)
    assert spmd.parse(str(simulation.module)) is not None
    results = simulation.unshard(*simulation(*simulation.shard(*program.arguments)))
    for part, desired in zip(results, program.results, strict=True):
        assert close(part, desired)


ANYWHERE = ["psum_of_one_axis", "ppermute_partial", "all_to_all", "training_step", "halo_exchange"]


@pytest.mark.parametrize("name", ANYWHERE)
def test_the_stacked_program_runs_anywhere(exported: dict[str, JaxProgram], name: str) -> None:
    """Here by StableHLO's reference interpreter."""
    program = exported[name]
    simulation = spmd.simulate(spmd.parse(program.text, name=name))
    arguments = [np.broadcast_to(array, (8, *array.shape[1:])) for array in simulation.shard(*program.arguments)]
    results = [
        array if array.shape[:1] == (8,) and array.ndim > len(kind.shape) else np.broadcast_to(array, (8, *array.shape))
        for array, kind in zip(reference(str(simulation.module), *arguments), simulation.out_types, strict=True)
    ]
    for part, desired in zip(simulation.unshard(*results), program.results, strict=True):
        assert close(part, desired)
