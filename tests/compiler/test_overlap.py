"""Large all_reduces are started when their operands are there, and waited for where they are first read."""

import numpy as np
import pytest

import spmd
from launch.cli import main
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import Options
from spmd.ir import Op

#: Two layers' gradients, as a backward pass gives them: the last layer's first, all reduced in the end.
PROGRAM = """
func.func @main(%x: tensor<SIZExSIZExf32>, %y: tensor<SIZExSIZExf32>) -> (tensor<SIZExSIZExf32>, tensor<SIZExSIZExf32>) {
  %last = stablehlo.multiply %x, %y : tensor<SIZExSIZExf32>
  %back = stablehlo.dot_general %last, %y, contracting_dims = [1] x [0] : (tensor<SIZExSIZExf32>, tensor<SIZExSIZExf32>) -> tensor<SIZExSIZExf32>
  %first = stablehlo.tanh %back : tensor<SIZExSIZExf32>
  %0 = "stablehlo.all_reduce"(%first) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<SIZExSIZExf32>) -> tensor<SIZExSIZExf32>
  %1 = "stablehlo.all_reduce"(%last) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<SIZExSIZExf32>) -> tensor<SIZExSIZExf32>
  %2 = stablehlo.subtract %x, %0 : tensor<SIZExSIZExf32>
  %3 = stablehlo.subtract %y, %1 : tensor<SIZExSIZExf32>
  return %2, %3 : tensor<SIZExSIZExf32>, tensor<SIZExSIZExf32>
}
"""  # noqa: E501
GRID = spmd.ProcessGrid(3, 1)


def module(size: int) -> spmd.Module:
    return spmd.parse(PROGRAM.replace("SIZE", str(size)))


def flat(size: int, **options: object) -> list[Op]:
    program = module(size)
    lowering = ModuleLowering(program, Options(grid=GRID, **options))  # type: ignore[arg-type]
    return lowering.flatten(program.function("main")).body.ops


def names(ops: list[Op]) -> list[str]:
    return [op.name.removeprefix("stablehlo.") for op in ops]


def test_a_gradient_travels_while_the_next_one_is_computed() -> None:
    ops = flat(512, overlap=True)
    assert names(ops) == [
        "multiply", "async_start", "dot_general", "tanh", "all_reduce", "subtract", "async_done", "subtract",
        "func.return",
    ]  # fmt: skip
    start, done, last = ops[1], ops[6], ops[7]
    assert start.operands == (ops[0].result,) and done.operands == (start.result,)
    assert last.operands[1] is done.result


@pytest.mark.parametrize("options", [{"overlap": False}, {}], ids=str)
def test_without_a_core_to_spare_nothing_is_started(options: dict[str, object]) -> None:
    """This process is no rank: nobody knows of cores of its own."""
    assert "async_start" not in names(flat(512, **options))


def test_what_is_small_is_not_started() -> None:
    assert "async_start" not in names(flat(511, overlap=True))


def test_a_core_to_spare_for_each_rank_is_what_auto_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3")
    for cores, overlaps in ((5, False), (6, True)):
        monkeypatch.setattr("spmd.compiler.pipeline.options.usable_cores", lambda cores=cores: cores)
        assert ("async_start" in names(flat(512, threads=1))) is overlaps
        assert "async_start" not in names(flat(512, threads=2))


def test_results_are_the_same_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    inputs = [[rng.normal(size=(512, 512)).astype(np.float32) for _ in range(2)] for _ in range(3)]
    plain, overlapped = (spmd.run_parallel(module(512), GRID, inputs, overlap=choice) for choice in (False, True))
    for mine, others in zip(overlapped, plain, strict=True):
        assert [array.tobytes() for array in mine] == [array.tobytes() for array in others]


def test_an_option_that_is_none_of_three_is_refused() -> None:
    with pytest.raises(spmd.UsageError, match="option overlap must be True, False or 'auto', got 'yes'"):
        spmd.compile(module(512), GRID, overlap="yes")  # type: ignore[arg-type]


def test_the_schedule_tells_what_goes_on_how_long(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    file = f"{tmp_path}/step.mlir"
    spmd.save(module(512), file)
    assert main(["explain", file, "--grid", "3x1", "--schedule", "--overlap"]) == 0
    lines = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if line[0].isdigit()]
    started = next(line for line in lines if "started" in line)
    assert started.startswith("2. stablehlo.all_reduce started -> tensor<512x512xf32> until 7")
    assert lines[6].startswith("7. stablehlo.async_done")
