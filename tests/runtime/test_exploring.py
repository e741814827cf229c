"""Orders of communication: results do not depend on them, or the two orders that differ are told."""

from collections import Counter

import numpy as np
import pytest

import spmd
from collectives.exploration import Fault

SUM = """({ ^bb0(%one: tensor<f32>, %other: tensor<f32>):
      %s = stablehlo.add %one, %other : tensor<f32>
      stablehlo.return %s : tensor<f32> })"""
GROUPS = "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
PAIRS = "source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>"
COMMUNICATING = f"""
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
  %a = "stablehlo.all_reduce"(%x) <{{{GROUPS}}}> {SUM} : (tensor<3xf32>) -> tensor<3xf32>
  %b = "stablehlo.collective_permute"(%a) <{{{PAIRS}}}> : (tensor<3xf32>) -> tensor<3xf32>
  %c = "stablehlo.all_reduce"(%b) <{{{GROUPS}}}> {SUM} : (tensor<3xf32>) -> tensor<3xf32>
  return %c : tensor<3xf32>
}}"""
GRID = spmd.ProcessGrid(4, 1)
INPUTS = [[np.float32([rank, 0.1 * rank, -rank])] for rank in range(4)]
CALLING = """
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %y = stablehlo.custom_call @count_calls(%x) {has_side_effect = true} : (tensor<f32>) -> tensor<f32>
  %z = stablehlo.custom_call @count_calls(%y) {has_side_effect = true} : (tensor<f32>) -> tensor<f32>
  return %z : tensor<f32>
}"""


@pytest.fixture
def counted() -> Counter[str]:
    """How often @count_calls was called, by which it gives another number each time."""
    calls: Counter[str] = Counter()

    def count(x: np.ndarray, attributes: object) -> np.ndarray:
        calls["all"] += 1
        return np.float32(x * 10 + calls["all"])

    spmd.register_custom_call("count_calls", count)
    return calls


def test_no_order_changes_what_collectives_give() -> None:
    expected = spmd.run_parallel(spmd.parse(COMMUNICATING), GRID, INPUTS, mode="threads")
    found = spmd.explore(spmd.parse(COMMUNICATING), GRID, INPUTS, seed=5, orders=50)
    assert found and found.orders == 50 and found.endings == {"results": 50}
    assert found.first.results is not None
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(found.first.results, expected, strict=True))


def test_the_order_of_communications_alone_is_one_order() -> None:
    found = spmd.explore(spmd.parse(COMMUNICATING), GRID, INPUTS, exhaustive=True)
    assert found and found.complete and found.orders == 1


def test_a_seed_runs_an_order_again() -> None:
    module = spmd.parse(COMMUNICATING)
    traces = [spmd.explore(module, GRID, INPUTS, seed=seed, orders=1).first.trace for seed in (7, 7, 8)]
    assert traces[0] == traces[1] != traces[2]
    assert {step.rank for step in traces[0]} == {0, 1, 2, 3}


def test_callbacks_whose_order_matters(counted: Counter[str]) -> None:
    """Two processes of two callbacks each: 4! / (2! 2!) orders, all tried; the two that differ are told."""
    inputs = [[np.float32(0)], [np.float32(0)]]
    found = spmd.explore(
        spmd.parse(CALLING), spmd.ProcessGrid(2, 1), inputs, exhaustive=True, before=counted.clear, backends=("numpy",)
    )
    assert not found and found.complete and found.orders == 6
    assert found.different is not None
    assert "two orders differ after" in str(found) and "process 1: custom_call @count_calls" in str(found)


def test_what_is_observed_is_compared(counted: Counter[str]) -> None:
    order: list[int] = []

    def note(x: np.ndarray, attributes: object) -> np.ndarray:
        order.append(int(x))
        return x

    spmd.register_custom_call("count_calls", note)
    inputs = [[np.float32(rank)] for rank in range(3)]
    grid, module = spmd.ProcessGrid(3, 1), spmd.parse(CALLING)
    each = {"before": order.clear, "observe": lambda: sorted(order)}
    assert spmd.explore(module, grid, inputs, exhaustive=True, **each)
    each["observe"] = lambda: list(order)
    assert not spmd.explore(module, grid, inputs, exhaustive=True, **each)


@pytest.mark.parametrize(("kind", "ending"), [("dies", "process 1 dies at its step 0"), ("stops", "deadlock")])
def test_a_fault_of_a_plan(kind: str, ending: str) -> None:
    found = spmd.explore(spmd.parse(COMMUNICATING), GRID, INPUTS, orders=3, faults=[Fault(1, 0, kind)])
    assert found.first.results is None and ending in str(found.first.error)
    if kind == "stops":
        assert "stopped: process 1 stops at its step 0" in str(found.first.error)


def test_a_slow_process_changes_nothing() -> None:
    found = spmd.explore(spmd.parse(COMMUNICATING), GRID, INPUTS, orders=20, faults=[Fault(2, 0, "slow", 100)])
    assert found and found.endings == {"results": 20}
    ranks = [step.rank for step in found.first.trace]
    assert ranks.index(2) > 2  # it began like the others, and then came after them wherever they could go on


def test_many_faults_end_well() -> None:
    """Every run of a thousand gives what it should, or ends with a sentence about who failed."""
    found = spmd.explore(spmd.parse(COMMUNICATING), GRID, INPUTS, orders=1000, faults=1)
    assert found and found.orders == 1000 and found.endings["results"] > 0
    endings = set(found.endings) - {"results"}
    assert endings and all("dies at its step" in text or text.startswith("deadlock") for text in endings)


def test_orders_that_all_end_in_a_deadlock_are_no_success() -> None:
    """One process of two comes to the all_reduce; a fault that ends some orders hides neither that nor a difference."""
    alone = """
    func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %id = stablehlo.replica_id : tensor<ui32>
      %branch = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
      %y = "stablehlo.case"(%branch) ({
        %s = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> REDUCTION
          : (tensor<3xf32>) -> tensor<3xf32>
        stablehlo.return %s : tensor<3xf32>
      }, {
        stablehlo.return %x : tensor<3xf32>
      }) : (tensor<i32>) -> tensor<3xf32>
      return %y : tensor<3xf32>
    }""".replace("REDUCTION", SUM)
    module, grid = spmd.parse(alone), spmd.ProcessGrid(2, 1)
    found = spmd.explore(module, grid, INPUTS[:2], orders=3)
    assert not found and found.different is None and found.failed is found.first
    assert str(found).startswith("3 orders end alike: ") and found.endings["results"] == 0
    assert not spmd.explore(module, grid, INPUTS[:2], orders=3, faults=[Fault(0, 0, "slow")])
    assert spmd.explore(module, grid, INPUTS[:2], orders=3, faults=[Fault(0, 0, "dies")])


def test_orders_after_one_that_a_fault_ends_are_compared(counted: Counter[str]) -> None:
    """Nothing sets the number of calls back: each order gives another one."""
    grid, inputs = spmd.ProcessGrid(2, 1), [[np.float32(0)], [np.float32(0)]]
    seed = next(seed for seed in range(20) if _is_ended(seed))
    found = spmd.explore(spmd.parse(CALLING), grid, inputs, seed=seed, orders=20, faults=1)
    assert found.first.results is not None and found.different is not None and not found


def _is_ended(seed: int) -> bool:
    inputs = [[np.float32(0)], [np.float32(0)]]
    found = spmd.explore(spmd.parse(CALLING), spmd.ProcessGrid(2, 1), inputs, seed=seed, orders=1, faults=1)
    return found.first.results is None


def test_wrong_arguments() -> None:
    with pytest.raises(spmd.UsageError, match="orders"):
        spmd.explore(spmd.parse(COMMUNICATING), GRID, INPUTS, orders=0)
    with pytest.raises(ValueError, match="kind must be one of dies, stops, slow"):
        Fault(0, 0, "explodes")
