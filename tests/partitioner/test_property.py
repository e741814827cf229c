"""A partitioned program gives what the unpartitioned one gives, whatever the program, the mesh and the shardings.

`SPMD_PROPERTY_DRAWS` says how many programs are drawn.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.partitioner.drawn_programs import draw
from tests.partitioner.running import run_parts, run_whole

_DRAWS = int(os.environ.get("SPMD_PROPERTY_DRAWS", "120"))
_BATCH = 20


@pytest.mark.parametrize("first", range(0, _DRAWS, _BATCH))
def test_parts_agree_with_the_whole(first: int) -> None:
    for seed in range(first, min(first + _BATCH, _DRAWS)):
        drawn = draw(seed)
        expected = run_whole(drawn.whole, drawn.arguments)
        found = run_parts(drawn.sharded, drawn.arguments, drawn.devices)
        for have, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}\n{drawn.sharded}")
