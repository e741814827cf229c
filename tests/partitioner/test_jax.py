"""Programs that JAX lowers with shardings: JAX's results on 8 ranks, and no more bytes than XLA sends."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import partitioner
import spmd
from partitioner.report import total_bytes
from tests.partitioner.jax_sharded import DEVICES, ShardedProgram, export
from tests.partitioner.running import run_parts

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")

_SOURCE = (Path(__file__).parent / "jax_sharded.py").read_text()
_NAMES = re.findall(r"^    add\(\s*\"(\w+)\"", _SOURCE, re.MULTILINE)


@pytest.fixture(scope="module")
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ShardedProgram]:
    """The programs that this run takes."""
    cases = [item.callspec.params for item in request.session.items if item.path == request.path and "[" in item.name]
    return export(tmp_path_factory.mktemp("jax"), [case["name"] for case in cases] or _NAMES)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", _NAMES)
def test_ranks_give_what_jax_gives(name: str, exported: dict[str, ShardedProgram]) -> None:
    program = exported[name]
    actual = run_parts(program.text, program.arguments, DEVICES)
    for part, desired in zip(actual, program.results, strict=True):
        assert part.shape == desired.shape
        assert part.dtype == desired.dtype
        np.testing.assert_allclose(part, desired, rtol=1e-4, atol=1e-4)


def test_no_more_is_sent_than_xla_sends(exported: dict[str, ShardedProgram]) -> None:
    ours = {
        name: total_bytes(partitioner.partition(spmd.parse(program.text), spmd.ProcessGrid(1, DEVICES)).module)
        for name, program in exported.items()
    }
    more = {name: (sent, exported[name].xla_bytes) for name, sent in ours.items() if sent > exported[name].xla_bytes}
    assert len(more) <= len(ours) // 10, more
    assert sum(ours.values()) < sum(program.xla_bytes for program in exported.values())
