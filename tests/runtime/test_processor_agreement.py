"""Ranks on unlike processors take what all of them have, and say so."""

import os
from pathlib import Path

import pytest

from spmd.backends.llvm.jit.processor import host
from spmd.runtime.processor_agreement import _note
from spmd.support.processor import common, named
from tests import plain_mpirun

PROGRAM = """
import hashlib, os, sys
rank = next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ)
os.environ["SPMD_PROCESSOR"] = {"0": "host", "1": "x86-64-v2"}[rank]
import numpy as np, spmd
from spmd.backends.llvm.jit.processor import chosen
body = '''%0 = stablehlo.exponential %x : tensor<1037xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
   ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<1037xf32>) -> tensor<1037xf32>
  return %0, %1 : tensor<1037xf32>, tensor<1037xf32>'''
head = "func.func @main(%x: tensor<1037xf32>) -> (tensor<1037xf32>, tensor<1037xf32>) {"
step = spmd.compile(spmd.parse(f"{head} {body} }}"), spmd.ProcessGrid(2, 1))
before = chosen().name
results = step(np.linspace(-1, 1, 1037, dtype=np.float32))
digest = hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest()
sys.stdout.write(f"{before} {chosen().name} {chosen().vector_bits} {digest}\\n")
"""


@pytest.mark.skipif(host().architecture != "x86_64", reason="another family of processors")
def test_ranks_take_what_all_of_them_have_and_one_says_so(tmp_path: Path) -> None:
    done = plain_mpirun.run(PROGRAM, 2, tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split() for line in done.stdout.splitlines() if line.strip())
    assert sorted(line[0] for line in lines) == sorted([host().name, "x86-64-v2"])
    assert {tuple(line[1:3]) for line in lines} == {("x86-64-v2", "128")}
    assert len({line[3] for line in lines}) == 1, "the same bits on both"
    notes = [line for line in done.stderr.splitlines() if line.startswith("spmd:")]
    assert len(notes) == 1
    assert "code is made for x86-64-v2, vectors of 128 bits" in notes[0]
    assert "rank 1 on" in notes[0]


def test_the_line_names_who_has_least_and_families() -> None:
    two, three, four = (named(f"x86-64-v{level}") for level in (2, 3, 4))
    note = _note(common([four, three, three]), [(four, "a"), (three, "b"), (three, "c")])
    assert "made for x86-64-v3, vectors of 256 bits" in note
    assert "rank 1 on b and 1 more has no more (x86-64-v3)" in note
    arm = named("aarch64-linux-gnu")
    assert common([two, arm]) is None
    assert "families (aarch64, x86_64)" in _note(None, [(two, "a"), (arm, "b")])
