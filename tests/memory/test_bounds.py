"""No program reads or writes a byte outside of its buffers: each lies between two pages that must not be touched."""

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Kinds of programs, from which one on, and how many at most.
ALL = [("sized", 0, 5000), ("indices", 0, 2000), ("drawn", 0, 300)]


def _guarded(placement: str, *kinds: tuple[str, int, int]) -> subprocess.CompletedProcess[str]:
    asked = [":".join(map(str, kind)) for kind in kinds]
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.memory.guarded", placement, *asked]
    environment = {**os.environ, "SPMD_CACHE_DIR": "", "OMP_NUM_THREADS": "2"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)


def _run(kind: str, placement: str, begin: int, count: int) -> None:
    done = _guarded(placement, (kind, begin, count))
    assert done.returncode == 0, f"{done.stdout[-600:]}\n{done.stderr[-3000:]}"
    assert done.stdout.splitlines()[-1].startswith(f"{kind}, sound: ")


@pytest.mark.parametrize(("placement", "beside"), [("end", 20), ("start", -1)])
def test_a_byte_beside_a_buffer_ends_the_process(placement: str, beside: int) -> None:
    code = f"""import ctypes, numpy as np; from tests.memory.guards import Guards
array = Guards(at_end={placement == "end"}).array((5,), np.dtype(np.float32)); array[:] = 7
print(array.sum(), flush=True); print(ctypes.c_char.from_address(array.ctypes.data + {beside}).value)"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "35.0\n", done.stderr
    assert done.returncode == -signal.SIGSEGV


SAMPLE = {"sized": 20, "mutants": 20, "indices": 20, "drawn": 10}


@cache
def _sample(placement: str) -> subprocess.CompletedProcess[str]:
    """One process that runs the samples of all kinds, one after another, to the first that touches other memory."""
    return _guarded(placement, *((kind, 7, count) for kind, count in SAMPLE.items()))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("placement", ["end", "start"])
@pytest.mark.parametrize("kind", SAMPLE)
def test_a_sample_keeps_to_its_buffers(kind: str, placement: str) -> None:
    done = _sample(placement)
    assert f"\n{kind}, sound: " in f"\n{done.stdout}", f"{done.stdout[-600:]}\n{done.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "begin", "count", "placement"),
    [
        *((*all_of_a_kind, placement) for all_of_a_kind in ALL for placement in ("end", "start")),
        *(("mutants", seed, 5000, placement) for seed, placement in enumerate(("end", "start", "end", "start"))),
    ],
)
def test_programs_keep_to_their_buffers(kind: str, begin: int, count: int, placement: str) -> None:
    _run(kind, placement, begin, count)


@pytest.mark.parametrize("kind", ["symbolic", "refined"])
def test_programs_of_unknown_sizes_do_what_those_of_known_ones_do(kind: str) -> None:
    _run(kind, "end", 5, 30)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["symbolic", "refined"])
def test_all_programs_of_unknown_sizes(kind: str) -> None:
    _run(kind, "end", 0, 5000)
