"""What is told of a program: its work, its memory, what it sends, and how it grows."""

from typing import Any

import pytest

import spmd
from collectives.network import Level, Network
from spmd.compiler.pipeline.prepare import prepare
from spmd.errors import CompileError, UsageError
from spmd.predict.machine import nominal
from spmd.predict.prediction import Prediction, predict, predict_on
from spmd.predict.report import page, picture
from spmd.predict.sweep import sweep
from tests.predict.programs import DATA_PARALLEL, SHARDED, loop

NETWORK = Network((Level("node", 8, 1e-6, 1e10), Level("rack", None, 1e-5, 1e9, "hierarchical", 1e9)))
ONE = "tensor<1xf32>"
BACKENDS = ("llvm", "numpy")


def told(text: str, grid: spmd.ProcessGrid | None = None, network: Network | None = None, **more: Any) -> Prediction:
    return predict(prepare(spmd.parse(text), grid, backends=BACKENDS), nominal(), network, **more)


def test_a_data_parallel_step() -> None:
    prediction = told(DATA_PARALLEL)
    assert prediction.grid.size == 4 and prediction.seconds == pytest.approx(
        prediction.computing + prediction.communicating
    )
    assert prediction.memory.arguments == 4 * (64 * 32 + 128 * 64) and prediction.memory.results == 4 * 64 * 32
    assert prediction.memory.temporaries >= 4 * 128 * 32
    # Recursive halving: 3/4 of the operand out, as much back, by each of four processes.
    assert prediction.levels == {"machine": 4 * 2 * 4 * 64 * 32 * 3 / 4}
    assert sum(share.seconds for share in prediction.critical) == pytest.approx(prediction.seconds)
    titles = {share.title.split(":")[0].split(" -> ")[0] for share in prediction.critical}
    assert {"dot_general", "all_reduce of 8.19 kB", "loop nest over 128x32"} <= titles
    assert all(share.place.startswith("<") or ":" in share.place for share in prediction.critical)


def test_a_prediction_is_the_same_every_time() -> None:
    assert told(DATA_PARALLEL, network=NETWORK).to_json() == told(DATA_PARALLEL, network=NETWORK).to_json()


def test_each_network_gives_its_own() -> None:
    prepared = prepare(spmd.parse(DATA_PARALLEL), spmd.ProcessGrid(4, 1), backends=BACKENDS)
    fast, slow = predict_on(prepared, nominal(), [NETWORK, NETWORK.slower(4)])
    assert slow.computing == fast.computing and slow.communicating > 2 * fast.communicating


def test_a_loop_takes_as_long_as_its_turns() -> None:
    few, many = (told(loop(turns)).seconds for turns in (1000, 4000))
    assert many / few == pytest.approx(4, rel=0.05)


def test_a_loop_is_no_quicker_than_what_waits_in_it() -> None:
    def body(second: str) -> str:
        lines = [f"%v0 = stablehlo.add %v, %a : {ONE}", f"%w0 = stablehlo.multiply {second.format(0)}, %a : {ONE}"]
        for number in range(1, 40):
            before = f"%w{number - 1}"
            lines.append(f"%v{number} = stablehlo.add {before}, %v : {ONE}")
            lines.append(f"%w{number} = stablehlo.multiply {second.format(number)}, {before} : {ONE}")
        return "\n".join([*lines, f"%u = stablehlo.add %w39, %v39 : {ONE}"])

    waiting, apart = (told(loop(1000, body(second)).replace("1000xf32", "1xf32")).seconds for second in ("%v{}", "%v"))
    assert waiting > 1.5 * apart and waiting > 80_000 / nominal().rates["serial"]


def test_a_loop_that_does_not_say_how_often_is_told() -> None:
    prediction = told(loop("%n"))
    assert any("the trip count of the loop is unknown: assumed 1 turn" in note for note in prediction.notes)
    assert told(loop("%n"), turns=4000).seconds == pytest.approx(told(loop(4000)).seconds, rel=0.05)
    assert "note: " in page(prediction, "p") and not told(loop(4000)).notes


def test_the_longer_branch_is_reckoned_with() -> None:
    branch = """
func.func @main(%p: tensor<i1>, %a: tensor<100000xf32>) -> tensor<100000xf32> {{
  %r = "stablehlo.if"(%p) ({{
    stablehlo.return %a : tensor<100000xf32>
  }}, {{
    %t = stablehlo.{} %a : tensor<100000xf32>
    stablehlo.return %t : tensor<100000xf32>
  }}) : (tensor<i1>) -> tensor<100000xf32>
  return %r : tensor<100000xf32>
}}"""
    short, long = (told(branch.format(op)).seconds for op in ("negate", "cosine"))
    assert long > 2 * short


def test_asynchronous_collectives_are_hidden_behind_what_is_computed() -> None:
    text = """
module attributes {mhlo.num_replicas = 2 : i32} {
  func.func @main(%x: tensor<65536xf32>, %y: tensor<512x512xf32>) -> (tensor<65536xf32>, tensor<512x512xf32>) {
    %f = "stablehlo.async_start"(%x) ({
      ^bb0(%v: tensor<65536xf32>):
        %g = "stablehlo.all_reduce"(%v) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
          ^bb1(%a: tensor<f32>, %b: tensor<f32>):
            %sum = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %sum : tensor<f32>
        }) : (tensor<65536xf32>) -> tensor<65536xf32>
        stablehlo.return %g : tensor<65536xf32>
    }) : (tensor<65536xf32>) -> !stablehlo.future<tensor<65536xf32>>
    %p = stablehlo.dot %y, %y : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
    %r = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<65536xf32>>) -> tensor<65536xf32>
    return %r, %p : tensor<65536xf32>, tensor<512x512xf32>
  }
}"""
    prediction = told(text)
    assert prediction.hidden > 0 and prediction.communicating == 0
    assert prediction.seconds == pytest.approx(prediction.computing) and "communication hidden" in page(prediction, "p")


# --- sweeps ---


def test_a_process_s_program_grows_with_its_processes() -> None:
    swept = sweep(spmd.parse(DATA_PARALLEL), "main", [1, 8, 64, 4096], nominal(), NETWORK, backends=BACKENDS)
    assert swept.grows and [point.processes for point in swept.points] == [1, 8, 64, 4096]
    assert swept.points[0].speedup == 1 and all(0 < point.efficiency <= 1 for point in swept.points)
    one = swept.points[0].seconds
    assert [point.speedup for point in swept.points] == pytest.approx(
        [n.processes * one / n.seconds for n in swept.points]
    )


def test_a_global_program_is_cut_finer() -> None:
    swept = sweep(spmd.parse(SHARDED), "main", [1, 2, 4, 8], nominal(), backends=BACKENDS)
    assert not swept.grows
    assert [point.speedup for point in swept.points] == pytest.approx(
        [swept.points[0].seconds / point.seconds for point in swept.points]
    )
    direct = told(SHARDED.replace('"data"=4', '"data"=8'), spmd.ProcessGrid(1, 8))
    assert swept.points[-1].seconds == pytest.approx(direct.seconds)


def test_sizes_of_an_axis_are_not_numbers_of_processes() -> None:
    text = SHARDED.replace('"data"=4', '"data"=4, "model"=4')
    swept = sweep(spmd.parse(text), "main", [1, 2, 4], nominal(), axis="data", backends=BACKENDS)
    assert [(point.size, point.processes) for point in swept.points] == [
        (1, 4),
        (2, 8),
        (4, 16),
    ]
    assert [point.efficiency for point in swept.points] == pytest.approx(
        [point.speedup / point.size for point in swept.points]
    )
    header, _, second, _ = swept.page().splitlines()[1:5]
    assert header.split() == ["axis", '"data"', "processes", "a", "step", "speed-up", "efficiency"]
    assert second.split()[:2] == ["2", "8"]


def test_what_cannot_be_swept_is_named() -> None:
    text = DATA_PARALLEL.replace("[[0, 1, 2, 3]]> : tensor<1x4xi64>", "[[0, 1], [2, 3]]> : tensor<2x2xi64>")
    with pytest.raises(CompileError, match="cannot be swept: it is not data parallel") as caught:
        sweep(spmd.parse(text), "main", [1, 2], nominal(), backends=BACKENDS)
    assert "stablehlo.all_reduce" in str(caught.value)
    with pytest.raises(UsageError, match="the mesh has no axis 'model'; its axes are: data"):
        sweep(spmd.parse(SHARDED), "main", [1, 2], nominal(), axis="model", backends=BACKENDS)
    alone = spmd.parse("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    with pytest.raises(UsageError, match="@main must have collectives or shardings to be swept"):
        sweep(alone, "main", [1, 2], nominal(), backends=BACKENDS)
    with pytest.raises(UsageError, match="whose axis the sweep resizes, got 4x1"):
        sweep(spmd.parse(SHARDED), "main", [1, 2], nominal(), grid=spmd.ProcessGrid(4, 1), backends=BACKENDS)
    with pytest.raises(
        UsageError, match="axis must be None for the program of one process, which has no shardings, got 'data'"
    ):
        sweep(spmd.parse(DATA_PARALLEL), "main", [1, 2], nominal(), axis="data", backends=BACKENDS)


def test_a_picture() -> None:
    drawn = picture([1, 2, 4], {"speed-up": [1.0, 2.0, 2.0]}, "faster")
    assert drawn.splitlines() == [
        "faster",
        "       4 |                 .",
        "         |",
        "       2 |          s      s",
        "         |",
        "       1 |   s",
        "         +---------------------",
        "             1      2      4",
        "          processes; s speed-up, . ideal",
    ]
