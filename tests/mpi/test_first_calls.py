"""What ranks compare at the first call of a program: who differs, and in what, is named on all of them."""

from typing import Any

import numpy as np
import pytest

import spmd
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
