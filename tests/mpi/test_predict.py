"""A machine measured, and a program checked, on real ranks."""

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.prepare import prepare
from spmd.predict import calibrate
from spmd.predict.check import check
from spmd.predict.machine import HOW, nominal
from spmd.runtime.compile import executable_of
from spmd.runtime.world import ranks
from tests.predict.programs import DATA_PARALLEL


@pytest.mark.mpi
def test_collectives_are_measured_in_groups_of_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_ROUND", 1e-5)
    monkeypatch.setattr(calibrate, "_ROUNDS", 2)
    monkeypatch.setattr(calibrate, "_SIZES", (4, 4096))
    monkeypatch.setattr(calibrate.probes, "PRODUCTS", [calibrate.probes.product("f32", "nn", (1, 16, 16, 16))])
    monkeypatch.setattr(calibrate.probes, "KINDS", {kind: [calibrate.probes.chain(2, 64)] for kind in ("elementwise",)})
    monkeypatch.setattr(calibrate, "RATES", dict.fromkeys(("elementwise", "product", "kernel", "folding"), ""))
    world = ranks()
    machine = calibrate.calibrate("here", world)
    assert {curve.ranks for curve in machine.curves} == set(calibrate._group_sizes(world.size))
    assert {curve.how for curve in machine.curves} == set(HOW)
    assert all(second >= first > 0 for curve in machine.curves for first, second in [curve.seconds])
    everyone = world.allgather_object(machine.curves)
    assert all(curves == machine.curves for curves in everyone)


@pytest.mark.mpi
def test_what_is_measured_is_that_of_the_slowest_rank() -> None:
    world = ranks()
    prepared = prepare(spmd.parse(DATA_PARALLEL), spmd.ProcessGrid(world.size, 1)) if world.size == 4 else None
    if prepared is None:
        pytest.skip("the program is for four ranks")
    executable = executable_of(prepared)
    arrays = [np.full(type.static_shape, 0.01, np.float32) for type in executable.in_types]
    checked = check(prepared, executable, arrays, nominal(), rounds=3)
    told = [checked.step.measured, *(each.measured for each in checked.units)]
    assert all(seconds > 0 for seconds in told) and world.allgather_object(told) == [told] * world.size
    (meeting,) = [each for each in checked.units if each.title.startswith("all_reduce")]
    assert meeting.place.endswith(":9:10") and 0 < meeting.share < 1
