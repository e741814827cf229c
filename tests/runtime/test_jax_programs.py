"""Programs that JAX lowers under shard_map for 8 devices, on 8 threads: JAX's results."""

import pytest

import spmd
from partitioner import join_blocks, shard_array
from tests.jax_programs import NAMES, JaxProgram, close


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", NAMES)
def test_threads_give_what_jax_gives(exported: dict[str, JaxProgram], name: str) -> None:
    program = exported[name]
    executable = spmd.compile(spmd.parse(program.text, name=name))
    shardings = executable.in_shardings
    assert shardings is not None and executable.out_shardings is not None
    inputs = [
        [shard_array(array, sharding, rank) for array, sharding in zip(program.arguments, shardings, strict=True)]
        for rank in range(8)
    ]
    results = zip(*spmd.run_parallel(executable, inputs=inputs), strict=True)
    for blocks, sharding, expected in zip(results, executable.out_shardings, program.results, strict=True):
        assert close(join_blocks(list(blocks), sharding), expected)
