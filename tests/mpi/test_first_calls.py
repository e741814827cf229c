"""What ranks compare at the first call of a program: who differs, and in what, is named on all of them."""

import warnings
from typing import Any

import numpy as np
import pytest

import spmd
from collectives.errors import CommunicationError
from spmd.runtime import world

pytestmark = pytest.mark.mpi


def program(size: int, groups: str = "all_reduce", *, constant: float = 1.0, name: str = "step.mlir") -> spmd.Module:
    ranks = world.number_of_ranks()
    text = f"""func.func @main(%x: tensor<{size}xf32>) -> tensor<{size}xf32> {{
      %0 = stablehlo.constant dense<{constant}> : tensor<{size}xf32>
      %1 = stablehlo.multiply %x, %0 : tensor<{size}xf32>
      %2 = "stablehlo.{groups}"(%1) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }}) {{replica_groups = dense<[{list(range(ranks))}]> : tensor<1x{ranks}xi64>}}
        : (tensor<{size}xf32>) -> tensor<{size}xf32>
      return %2 : tensor<{size}xf32>
    }}"""
    return spmd.parse(text, name=name)


def compiled(module: spmd.Module, **options: Any) -> spmd.Executable:
    return spmd.compile(module, spmd.ProcessGrid(world.number_of_ranks(), 1), **options)


def rank() -> int:
    return int(world.base().rank)


@pytest.mark.parametrize("odd", [0, -1])
def test_another_shape_is_named_on_all_ranks(odd: int) -> None:
    """By the first rank, which compares, or by the last one."""
    mine = 7 if rank() == odd % world.number_of_ranks() else 8
    with pytest.raises(spmd.CollectiveError) as error:
        compiled(program(mine))(np.ones(mine, np.float32))
    text = str(error.value)
    assert "differ in what they must have in common" in text and "mpmd=True" in text
    assert "argument 0:" in text and "tensor<7xf32>" in text and "tensor<8xf32>" in text
    assert "the first call of @main at step.mlir:1" in text and "stablehlo.all_reduce at step.mlir:4" in text


def test_another_program_is_named_by_its_line() -> None:
    module = program(8, "collective_reduce" if rank() == 1 else "all_reduce")
    with pytest.raises(spmd.CollectiveError) as error:
        compiled(module)(np.ones(8, np.float32))
    text = str(error.value)
    assert "program, line" in text and "process 1: " in text
    assert "collective_reduce" in text and "all_reduce" in text


def test_another_option_is_named() -> None:
    with pytest.raises(spmd.CollectiveError, match=r"(?s)reproducible:\n.*process 0: True\n.*: False"):
        compiled(program(8), reproducible=rank() == 0)(np.ones(8, np.float32))


def test_constants_and_places_may_differ() -> None:
    executable = compiled(program(8, constant=rank() + 1.0, name=f"step-of-{rank()}.mlir"))
    total = sum(range(1, world.number_of_ranks() + 1))
    for _ in range(2):
        np.testing.assert_array_equal(executable(np.ones(8, np.float32))[0], np.full(8, total, np.float32))


def test_different_programs_are_meant_to_be_different() -> None:
    """Each rank has a program of its own, with the same collective in it."""
    text = str(program(8)).replace("stablehlo.multiply", "stablehlo.divide" if rank() else "stablehlo.multiply")
    executable = compiled(spmd.parse(text, name="mine.mlir"), mpmd=True)
    assert executable(np.ones(8, np.float32))[0].tolist() == [world.number_of_ranks()] * 8


def test_a_program_without_communication_waits_for_nobody() -> None:
    """Nor does one that is compiled, and not called."""
    if rank() == 0:
        text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
        assert compiled(spmd.parse(text, name="alone.mlir"))(np.ones(2, np.float32))[0].tolist() == [1, 1]
        assert compiled(program(3)).communicates


def test_ranks_that_come_for_different_checkpoints(tmp_path: Any) -> None:
    from spmd import checkpoint

    if world.number_of_ranks() > 1:
        with pytest.raises(spmd.SpmdError, match=r"(?s)save of step 0.*process 1: checkpoint.save of step 1"):
            checkpoint.save(tmp_path, rank(), {"x": np.ones(3)})


#: What the odd rank calls instead of the sum of 37 f32: (method, shape, dtype, further arguments), and its words.
DIFFERENT = {
    "reduction": (("all_reduce", (37,), np.float32, "max"), "all_reduce maximum of 37 float32"),
    "shape": (("all_reduce", (38,), np.float32), "all_reduce add of 38 float32"),
    "element type": (("all_reduce", (37,), np.int32), "all_reduce add of 37 int32"),
    "bits": (("all_reduce", (37,), np.float32, "add", True), "all_reduce add of 37 float32 among"),
    "operation": (("all_gather", (37,), np.float32, 0), "all_gather of 37 float32"),
    "root": (("collective_broadcast", (37,), np.float32, 1), "collective_broadcast of 37 float32"),
}


def bound(method: str, shape: tuple[int, ...], dtype: Any, *rest: Any) -> Any:
    options = {"reproducible": rest[1]} if len(rest) > 1 else {}
    return getattr(world.ranks(), method)(shape, dtype, *rest[:1], **options)


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_first_call_that_differs_gives_no_value(case: str) -> None:
    """Called without a program, by the last rank."""
    last = world.number_of_ranks() - 1
    what, words = DIFFERENT[case]
    given = np.ones(what[1] if rank() == last else 37, what[2] if rank() == last else np.float32)
    out = np.full_like(given, 7)
    call = bound(*what) if rank() == last else bound("all_reduce", (37,), np.float32)
    with pytest.raises(CommunicationError, match="call different collectives") as error:
        call(given, out) if what[0] == "all_reduce" else call(given)
    assert out.tolist() == [7] * out.size
    lines = str(error.value).splitlines()[1:]
    assert any(
        "all_reduce add of 37 float32 among" in line and f"process{'es' * (last > 1)} 0" in line for line in lines
    )
    assert any(f"process {last}: {words}" in line for line in lines)
    assert all("test_first_calls.py:" in line for line in lines)
    assert case != "bits" or lines[-1].endswith(", reproducible")


def test_what_is_called_again_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where it is bound anew."""
    from collectives.mpi.check import CheckedCommunicator

    communicator = world.ranks()
    count = 0
    plain = CheckedCommunicator.compare_call

    def counting(self: CheckedCommunicator, *given: Any) -> None:
        nonlocal count
        count += 1
        plain(self, *given)

    monkeypatch.setattr(CheckedCommunicator, "compare_call", counting)
    call = communicator.all_reduce((6, 7), np.float32, "min")
    for _ in range(3):
        assert call(np.ones((6, 7), np.float32)).sum() == 42
        communicator.all_reduce((6, 7), np.float32, "min")(np.ones((6, 7), np.float32))
    assert count == 1
    executable = compiled(program(9))
    for _ in range(2):
        executable(np.ones(9, np.float32))
    assert count == 2


def test_programs_that_differ_on_purpose_meet_in_the_same_collectives() -> None:
    module = program(13, "collective_reduce" if rank() == 1 else "all_reduce", name="mine.mlir")
    with pytest.raises(spmd.CollectiveError, match=r"mine.mlir:4(?s:.*)collective_reduce add of 13 float32") as error:
        compiled(module, mpmd=True)(np.ones(13, np.float32))
    assert "process 1: collective_reduce" in str(error.value) and "all_reduce add of 13 float32" in str(error.value)


def test_branches_that_differ_give_no_value() -> None:
    """One program, in which ranks go different ways."""
    branches = ", ".join(
        f"""{{
        %r = "stablehlo.all_reduce"(%x) ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.{op} %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }}) {{replica_groups = dense<[{list(range(world.number_of_ranks()))}]>
          : tensor<1x{world.number_of_ranks()}xi64>}} : (tensor<11xf32>) -> tensor<11xf32>
        stablehlo.return %r : tensor<11xf32>
      }}"""
        for op in ("add", "maximum")
    )
    text = f"""func.func @main(%x: tensor<11xf32>, %i: tensor<i32>) -> tensor<11xf32> {{
      %0 = "stablehlo.case"(%i) ({branches}) : (tensor<i32>) -> tensor<11xf32>
      return %0 : tensor<11xf32>
    }}"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        executable = compiled(spmd.parse(text, name="ways.mlir"))
    with pytest.raises(spmd.CollectiveError, match=r"process 1: all_reduce maximum of 11 float32"):
        executable(np.ones(11, np.float32), np.int32(rank() == 1))
