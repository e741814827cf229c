"""Drawn grids, groups, shardings, arrays and programs are what they are said to be; and what is checked with them."""

import importlib
import sys
from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.analysis.varying.check import check_processes
from spmd.analysis.varying.findings import FindingKind
from spmd.testing import strategies
from spmd.testing.strategies import GridProgram, ReplicaGroups


@given(strategies.replica_groups())
def test_replica_groups_hold_each_process_once(groups: ReplicaGroups) -> None:
    ranks = [rank for group in groups.groups for rank in group]
    assert sorted(ranks) == list(range(groups.grid.size))


@given(strategies.replica_groups(uneven=False))
def test_even_groups(groups: ReplicaGroups) -> None:
    assert len({len(group) for group in groups.groups}) == 1


@given(strategies.meshes(), st.lists(st.integers(1, 12), max_size=3), st.data())
def test_even_shardings_divide(mesh: dict[str, int], shape: list[int], data: st.DataObject) -> None:
    text = data.draw(strategies.shardings(mesh, shape))
    dimensions = text.partition("[")[2].rstrip(">]").split("}, {") if shape else []
    for size, axes in zip(shape, dimensions, strict=True):
        assert size % prod(mesh[axis] for axis in mesh if f'"{axis}"' in axes) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, np.bool_, np.complex64, ml_dtypes.bfloat16])
@given(data=st.data())
def test_arrays_have_their_type_and_shape(dtype: type, data: st.DataObject) -> None:
    array = data.draw(strategies.arrays(dtype, (2, 3)))
    assert array.dtype == np.dtype(dtype)
    assert array.shape == (2, 3)


def test_values_that_hurt() -> None:
    values = strategies.values_that_hurt(np.float32)
    assert np.isnan(values).any() and np.isinf(values).any()
    assert (np.signbit(values) & (values == 0)).any()
    assert (np.abs(values[np.isfinite(values)]) < np.finfo(np.float32).tiny).any()


@settings(max_examples=15)
@given(strategies.programs())
def test_what_is_called_the_same_is_the_same(program: GridProgram) -> None:
    """Results of which the analysis does not report that they differ have one value on all processes."""
    module = program.module
    count = len(module.function("main").type.results)
    differing = set()
    for index in range(count):
        found = check_processes(module, program.grid, replicated_arguments=[0], replicated_results=[index])
        assert {each.kind for each in found} <= {FindingKind.VARYING_RESULT}
        differing |= {index} if found else set()
    results = spmd.run_parallel(module, program.grid, program.inputs)
    for index in set(range(count)) - differing:
        assert all(each[index].tobytes() == results[0][index].tobytes() for each in results), program.text


@settings(max_examples=10)
@given(strategies.programs(spmd.ProcessGrid(3, 1), max_ops=5))
def test_results_do_not_depend_on_the_order(program: GridProgram) -> None:
    assert spmd.explore(program.module, program.grid, program.inputs, orders=4)


def test_without_hypothesis_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "spmd.testing.strategies")
    with pytest.raises(spmd.UsageError, match=r"needs Hypothesis: pip install hypothesis"):
        importlib.import_module("spmd.testing.strategies")
