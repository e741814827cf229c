"""The data of a page: what it says of a program is what the compiler, the partitioner and the prediction say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partitioner
import spmd
from launch.cli import main
from partitioner.report import collectives
from spmd.compiler.pipeline.prepare import prepare
from spmd.predict.machine import default_machine
from spmd.predict.prediction import predict
from spmd.predict.shares import shares
from spmd.support.amounts import amount
from spmd.viewing.page import embedded
from spmd.viewing.places import names_in
from spmd.viewing.profile import read_profile
from spmd.viewing.tables import Texts
from tests.backends.collective_programs import PROGRAMS as COLLECTIVES
from tests.predict.programs import DATA_PARALLEL, SHARDED
from tests.viewing.programs import DYNAMIC, EMPTY, HOSTILE, LAYERS, LOOP, shown

PROGRAMS = {"layers": LAYERS, "data parallel": DATA_PARALLEL, "sharded": SHARDED, "loop": LOOP}
SINGULAR = {"hostile": HOSTILE, "dynamic": DYNAMIC, "empty": EMPTY}


def data_of(text: str) -> Any:
    return shown(text).documents[0]


def text_of(data: Any, number: int) -> str:
    return str(data["texts"][number])


@pytest.mark.parametrize("name", [*PROGRAMS, *SINGULAR])
def test_the_data_is_json_in_which_every_number_is_a_place_of_its_table(name: str) -> None:
    data = json.loads(json.dumps(data_of((PROGRAMS | SINGULAR)[name]), allow_nan=False))
    tables = {key: len(data[key]) for key in ("texts", "ops", "values", "scopes", "places", "shardings", "globals")}
    assert all(name < tables["texts"] and parent < tables["scopes"] for name, parent in data["scopes"])
    for title, operands, results, scope, place, reshard, rule, _ in data["ops"]:
        assert title < tables["texts"] and scope < tables["scopes"] and place < tables["places"]
        assert all(value < tables["values"] for value in (*operands, *results))
        assert reshard < len(data["reshards"]) and rule < tables["texts"]
    for _, _, _, _, whole, sharding, op, _ in data["values"]:
        assert whole < tables["globals"] and sharding < tables["shardings"] and op < tables["ops"]
    for _, _, _, _, ops, _, parts in data["units"]:
        assert all(op < tables["ops"] for op in ops)
        assert len(parts) == len(ops) and all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(1.0 if ops else 0.0)


@pytest.mark.parametrize("text", [LAYERS, SHARDED])
def test_collectives_are_those_of_the_partition_table(text: str) -> None:
    data = data_of(text)
    rows = collectives(partitioner.partition(spmd.parse(text)).module)
    assert rows
    told = [
        (each["kind"], max(sum(m["sent"] for m in each["messages"]), sum(m["received"] for m in each["messages"])))
        for each in data["collectives"]
    ]
    assert told == [(row.kind, row.bytes) for row in rows]


def test_every_resharding_says_which_value_goes_from_where_to_where_for_whom() -> None:
    data = data_of(LAYERS)
    why = [data["reshards"][data["ops"][each["op"]][5]] for each in data["collectives"]]
    told = [(each["from"], each["to"]) for each in why]
    assert all(before != after for before, after in told)
    names = [text_of(data, data["globals"][each["value"]][0]) for each in why]
    assert sorted(names) == ["%t", "%y"]
    assert data["shardings"][why[names.index("%y")]["from"]]["partial"]


def test_the_way_to_every_axis_ends_at_a_layout_that_the_program_asks_for() -> None:
    data = data_of(LAYERS)
    wholes = data["globals"]

    def ends(number: int, dimension: int) -> bool:
        *_, asked, grown = wholes[number]
        steps = [growth for growth in grown if growth[0] == dimension]
        return bool(asked) or any(ends(growth[4], growth[5]) for growth in steps)

    cut = [
        (number, dimension)
        for number, entry in enumerate(wholes)
        if entry[4] >= 0
        for dimension, axes in enumerate(data["shardings"][entry[4]]["dims"])
        if axes
    ]
    assert len(cut) > 5
    assert all(ends(number, dimension) for number, dimension in cut)


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_time_is_what_is_predicted(text: str) -> None:
    data = data_of(text)
    processes = spmd.ProcessGrid(*map(int, (data["grid"]["replicas"], data["grid"]["partitions"])))
    prediction = predict(prepare(spmd.parse(text), processes), default_machine())
    told = data["prediction"]
    assert (told["seconds"], told["levels"]) == (prediction.seconds, dict(prediction.levels))
    for track in data["timeline"]["tracks"]:
        assert track["moments"][-1][3] == pytest.approx(prediction.seconds * 1e9, abs=1)
    alike = [rank for track in data["timeline"]["tracks"] for rank in track["ranks"]]
    assert sorted(alike) == list(range(prediction.grid.size))
    assert sum(seconds for _, seconds in data["timeline"]["critical"]) == pytest.approx(prediction.seconds)


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_every_collective_has_its_time_also_those_in_loops(text: str) -> None:
    told = [(each["kind"], each["seconds"] is not None, each["turns"]) for each in data_of(text)["collectives"]]
    assert all(known for _, known, _ in told)
    assert ("collective_permute", True, 2) in told or text is not LOOP


def live_at(memory: Any, step: int, kind: str = "") -> int:
    rows = memory["live"]
    return sum(nbytes for nbytes, first, last, *_, what in rows if first <= step <= last and what.startswith(kind))


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("text", [*PROGRAMS.values(), (EXAMPLES / "sharded" / "step.mlir").read_text()])
def test_memory_is_what_the_run_reserves(text: str) -> None:
    memory = data_of(text)["memory"]
    steps = range(len(memory["steps"]))
    assert max(live_at(memory, step) for step in steps) == pytest.approx(memory["footprint"]["temporaries"], rel=0.05)
    for size, first, last in memory["arenas"]:
        peak = max(live_at(memory, step, "temporary") for step in range(first, last + 1))
        assert peak == pytest.approx(size, rel=0.05)


def path_of(data: Any, scope: int) -> list[str]:
    names: list[str] = []
    while scope > 0:
        name, scope = data["scopes"][scope]
        names.insert(0, text_of(data, name))
    return names


def test_scopes_are_the_names_in_locations() -> None:
    data = data_of(LAYERS)
    paths = {"/".join(path_of(data, op[3])) for op in data["ops"]}
    assert {"jit(step)/block_0/mlp", "jit(step)/block_1/mlp"} <= paths


@pytest.mark.parametrize(
    ("debug", "path"),
    [
        ('"jit(f)/block/dot"("f.py":1:2)', ("jit(f)", "block", "dot")),
        ('"jit(f)/transpose(jvp(a/b))/dot"(#loc1)', ("jit(f)", "transpose(jvp(a/b))", "dot")),
        ('"f.py":1:2', ()),
        ("unknown", ()),
        ('callsite("g"("f.py":1:2) at "h"("f.py":3:4))', ()),
        (None, ()),
        ('"//"', ()),
    ],
)
def test_the_names_in_a_location_are_its_scopes_and_the_op(debug: str | None, path: tuple[str, ...]) -> None:
    assert names_in(debug) == path


CALLED = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @_twice(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("jit(f)/block/jit(_twice)")
  %1 = call @_twice(%0) : (tensor<4xf32>) -> tensor<4xf32> loc("jit(f)/jit(_twice)")
  return %1 : tensor<4xf32>
}
func.func private @_twice(%y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %y, %y : tensor<4xf32> loc("inner/add")
  return %0 : tensor<4xf32>
}
func.func private @unused(%y: tensor<4xf32>) -> tensor<4xf32> {
  return %y : tensor<4xf32>
}
"""


def test_the_ops_of_a_function_stand_where_it_is_called() -> None:
    data = data_of(CALLED)
    adds = [op for op in data["ops"] if text_of(data, op[0]) == "add"]
    assert "func.call" not in {text_of(data, op[0]) for op in data["ops"]} and len(adds) == 2
    assert adds[1][1] == 2 * adds[0][2] and data["results"] == adds[1][2]
    paths = ["/".join(path_of(data, op[3])) for op in adds]
    assert paths == ["jit(f)/block/@_twice/inner", "jit(f)/@_twice/inner"]
    assert sum(unit[2] > 0 and unit[4] == [0, 1] for unit in data["units"]) == 1


def test_names_are_shortened_and_cannot_end_their_element() -> None:
    page = shown(HOSTILE).to_html()
    assert page.count("<script") == 2 and page.count("</script") == 2
    assert len(page) < 200_000
    assert "\u2028" not in embedded(["\u2028"]) and json.loads(embedded(["<&\u2028>"])) == ["<&\u2028>"]


def test_what_cannot_be_planned_is_told() -> None:
    assert any("dynamic shapes" in note for note in data_of(DYNAMIC)["notes"])


def test_values_are_what_the_run_gives() -> None:
    data = shown(LOOP, run=True).documents[0]["run"]
    given = np.array([entry[0][1] for entry in data["arguments"]], dtype=np.int32).reshape(4, 4, 2)
    results = spmd.run_parallel(spmd.parse(LOOP), inputs=[[array] for array in given])
    last = [step for step in data["steps"] if step["values"][0][0][0] == [1, 8]][-1]
    for rank, (result,) in enumerate(results):
        assert [int(each) for each in last["values"][rank][-1][1]] == result.ravel().tolist()


def test_values_of_many_processes_are_refused() -> None:
    module = spmd.parse(EMPTY)
    with pytest.raises(spmd.UsageError, match="at most 64 processes"):
        spmd.view(module, grid=spmd.ProcessGrid(65, 1), run=True)


CHAIN = """
func.func @main(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = stablehlo.tanh %x : tensor<256x256xf32>
  %1 = stablehlo.add %0, %x : tensor<256x256xf32>
  return %1 : tensor<256x256xf32>
}
"""


def test_the_time_of_a_unit_is_divided_over_its_ops_by_their_costs() -> None:
    data = data_of(CHAIN)
    (unit,) = data["units"]
    names = [text_of(data, data["ops"][op][0]) for op in unit[4]]
    tanh, add = shares(list(spmd.parse(CHAIN).function("main").body.ops)[:2], default_machine())
    assert names == ["tanh", "add"] and unit[6] == pytest.approx([tanh, add])
    assert tanh > 10 * add > 0


def test_ends_of_blocks_are_no_ops_that_do_something() -> None:
    data = data_of(LOOP)
    assert sorted(text_of(data, op[0]) for op in data["ops"] if op[7]) == ["func.return", "return", "return"]
    data = data_of(CHAIN)
    assert [text_of(data, op[0]) for op in data["ops"] if not op[7]] == ["tanh", "add"]


def trace_of_steps(path: Path, steps: list[tuple[int, float]], names: tuple[str, ...] = ("@main",)) -> Path:
    """A trace of two ranks: of each step (its number, its microseconds) a program with a unit in its latter half."""
    events, began = [], 0.0
    for number, took in steps:
        for name in names:
            for rank in (0, 1):
                common = {"ph": "X", "pid": rank, "tid": 0}
                program = {"name": name, "cat": "program", "ts": began, "dur": took, "args": {"step": number}}
                unit = {"name": f"unit {number}", "cat": "fusion", "ts": began + took / 2, "dur": took / 2, "args": {}}
                events += [common | program, common | unit]
            began += took
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_the_last_of_several_measured_steps_is_shown(tmp_path: Path) -> None:
    texts = Texts()
    warm = read_profile(trace_of_steps(tmp_path / "t.json", [(0, 5e4), (1, 2.0)]), texts)
    assert warm["what"] == "measured: step 1" and [track["end"] for track in warm["tracks"]] == [1000, 1000]
    assert {texts.entries[event[0]] for track in warm["tracks"] for event in track["events"]} == {"unit 1"}
    cold = read_profile(trace_of_steps(tmp_path / "t.json", [(0, 5e4)]), texts)
    assert cold["what"].startswith("measured: step 0, with cold code") and cold["tracks"][0]["end"] == 25_000_000
    several = read_profile(trace_of_steps(tmp_path / "t.json", [(0, 5e4), (1, 2.0)], ("@a", "@b")), texts)
    assert several["what"] == "measured" and len(several["tracks"][0]["events"]) == 4


def test_a_measured_cold_step_does_not_squash_the_prediction(tmp_path: Path) -> None:
    module = spmd.parse(CHAIN)
    predicted = round(data_of(CHAIN)["prediction"]["seconds"] * 1e9)
    for took in (1e6 * predicted, 2e-3 * predicted):
        (data,) = spmd.view(module, profile=trace_of_steps(tmp_path / "t.json", [(0, took)])).documents
        assert data["span"] == pytest.approx(predicted, abs=1)
    assert data_of(CHAIN)["span"] == predicted


@pytest.mark.parametrize("text", ["{}", "[1]", "nothing", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": 3}'])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(spmd.UsageError, match=r"trace\.json: error: is not a trace"):
        spmd.view(spmd.parse(EMPTY), profile=path)
    with pytest.raises(spmd.UsageError, match="No such file"):
        spmd.view(spmd.parse(EMPTY), profile=tmp_path / "absent.json")


def test_an_executable_is_shown_as_it_is_laid_out() -> None:
    executable = spmd.compile(spmd.parse(LAYERS), spmd.ProcessGrid(1, 4))
    data = spmd.view(executable).documents[0]
    wholes = [text_of(data, data["globals"][value[4]][1]) for value in data["values"][:3]]
    assert wholes == ["tensor<8x6xf32>", "tensor<6x16xf32>", "tensor<16x5xf32>"]
    with pytest.raises(spmd.UsageError, match="compiled already"):
        spmd.view(executable, grid=spmd.ProcessGrid(4, 1))


def test_a_long_program_is_a_small_page() -> None:
    text = (EXAMPLES / "sharded" / "step.mlir").read_text()
    view = shown(text)
    ops = len(view.documents[0]["ops"])
    assert ops > 1000 and len(view.to_html()) < 150_000 + 500 * ops  # a step of GPT-2 of 5,000 ops is within 3 MB


@pytest.mark.parametrize("name", ["element types that no array holds", "a missing function"])
def test_what_is_odd_is_shown_or_refused_in_a_sentence(name: str) -> None:
    if name == "a missing function":
        with pytest.raises(spmd.SpmdError, match="@other"):
            spmd.view(spmd.parse(EMPTY), function="other")
        return
    text = "func.func @main(%x: tensor<2x!quant.uniform<i8:f32, 2.0:3>>) -> tensor<2x!quant.uniform<i8:f32, 2.0:3>> {"
    assert spmd.view(spmd.parse(text + "return %x : tensor<2x!quant.uniform<i8:f32, 2.0:3>> }")).documents


HLO = """HloModule m, num_partitions=2

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

ENTRY main { x = f32[4]{0} parameter(0)
  ROOT r = f32[4]{0} all-reduce(x), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, to_apply=add }
"""


def test_hlo_text_is_shown() -> None:
    data = spmd.view(spmd.parse(HLO)).documents[0]
    assert data["grid"]["size"] == 2 and [each["kind"] for each in data["collectives"]] == ["all_reduce"]


MANY = """
func.func @part(%x: tensor<2xi64>) -> tensor<2xi64> {
  %0 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}>
    : (tensor<2xi64>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}
func.func @main(%x: tensor<2xi64>, %y: tensor<2xi64>) -> (tensor<2xi64>, tensor<2xi64>) {
  %0:2 = "interpreter.run_parallel"(%x, %y) <{programs = [[@part], [@part]]}>
    : (tensor<2xi64>, tensor<2xi64>) -> (tensor<2xi64>, tensor<2xi64>)
  return %0#0, %0#1 : tensor<2xi64>, tensor<2xi64>
}
"""


def test_functions_that_start_processes_are_shown_and_so_is_one_whose_groups_do_not_fit() -> None:
    data = spmd.view(spmd.parse(MANY)).documents[0]
    assert "interpreter.run_parallel" in {text_of(data, op[0]) for op in data["ops"]}
    data = spmd.view(spmd.parse(MANY), function="part").documents[0]
    assert data["collectives"] == [] and any("out of range" in note for note in data["notes"])
    data = spmd.view(spmd.parse(MANY), function="part", grid=spmd.ProcessGrid(2, 1)).documents[0]
    assert [each["kind"] for each in data["collectives"]] == ["collective_permute"]


@pytest.mark.parametrize("name", sorted(COLLECTIVES)[::2])
def test_communication_is_what_explain_prints(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each message's bytes, and those of all once through."""
    program = COLLECTIVES[name]
    (data,) = spmd.view(spmd.parse(program.text), grid=program.grid).documents
    (tmp_path / "p.mlir").write_text(program.text)
    assert main(["explain", str(tmp_path / "p.mlir"), "--grid", str(program.grid)]) == 0
    said = capsys.readouterr().out
    messages = [message for each in data["collectives"] for message in each["messages"]]
    printed = re.findall(r"^  (.*): sends (.*), receives (.*)$", said, re.MULTILINE)
    assert printed == [
        (text_of(data, each["text"]), amount(each["sent"]), amount(each["received"])) for each in messages
    ]
    if messages:
        total = [amount(sum(each[way] for each in messages)) for way in ("sent", "received")]
        assert f"sends up to {total[0]} and receives up to {total[1]}" in said
