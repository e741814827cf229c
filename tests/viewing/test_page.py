"""The page in a real browser: what it draws is what the data and the compiler say, and it reaches no network."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spmd
from partitioner import shard_array
from spmd.predict.report import duration
from spmd.support.amounts import amount
from spmd.viewing.view import View
from tests.predict.programs import DATA_PARALLEL
from tests.viewing.browser import Tab, browser
from tests.viewing.programs import DYNAMIC, EMPTY, HOSTILE, LAYERS, LOOP, shown

PANELS = ("overview", "grid", "arrays", "program", "communication", "memory", "time")


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def opened(tab: Tab, folder: Path, view: View, name: str = "page") -> Any:
    """Opens a page, and gives its first program's data as Python has it."""
    path = folder / f"{name}.html"
    view.save(path)
    tab.open(path)
    return json.loads(json.dumps(view.documents[0]))


def is_quiet(tab: Tab) -> None:
    assert tab.messages == []
    assert [url for url in tab.requests if not url.startswith(("file:", "blob:", "data:"))] == []
    assert len([url for url in tab.requests if url.startswith("file:")]) == 1


@pytest.mark.parametrize("text", [LAYERS, DATA_PARALLEL, HOSTILE, DYNAMIC, EMPTY])
def test_every_panel_opens_without_a_message_or_a_request(tab: Tab, folder: Path, text: str) -> None:
    opened(tab, folder, shown(text))
    for panel in PANELS:
        tab.show(panel)
        assert tab.texts(f"#panel-{panel} h2")
    assert tab.run("window.hit") is None
    is_quiet(tab)


def test_the_numbers_of_the_panels_are_those_of_the_commands(tab: Tab, folder: Path) -> None:
    data = opened(tab, folder, shown(LAYERS))
    prediction, memory = data["prediction"], data["memory"]
    assert "4 processes" in tab.texts("header p")[0]
    tab.show("grid")
    assert tab.texts("#panel-grid .cell text") == ["0", "1", "2", "3"]
    assert '"data"=2, "model"=2' in tab.texts("#panel-grid .facts td")
    tab.show("communication")
    rows = [re.split(r"\t", row) for row in tab.page.locator("#panel-communication tbody tr").all_inner_texts()]
    for row, each in zip(rows, data["collectives"], strict=True):
        assert row[1].startswith(each["kind"])
        assert row[3] == amount(sum(message["sent"] for message in each["messages"]))
        assert row[5] == duration(each["seconds"]).replace("us", "µs")
    tab.show("memory")
    told = dict(zip(tab.texts("#panel-memory .facts th"), tab.texts("#panel-memory .facts td"), strict=True))
    assert told["in all"] == amount(sum(memory["footprint"].values()))
    tab.show("time")
    told = dict(zip(tab.texts("#panel-time .facts th"), tab.texts("#panel-time .facts td"), strict=True))
    assert told["a step"] == duration(prediction["seconds"]).replace("us", "µs")
    assert told["computing"].startswith(duration(prediction["computing"]).replace("us", "µs"))
    tab.show("program")
    assert tab.page.locator("#panel-program .box").count() > 1


LONG = "\n".join(
    ["func.func @main(%x0: tensor<4xf32>) -> tensor<4xf32> {"]
    + [f"  %x{n + 1} = stablehlo.tanh %x{n} : tensor<4xf32>" for n in range(100)]
    + ["  return %x100 : tensor<4xf32>", "}"]
)


def test_the_graph_is_fitted_zoomed_and_moved_and_groups_are_named_by_lines(tab: Tab, folder: Path) -> None:
    opened(tab, folder, shown(LONG))
    tab.show("program")
    names = tab.texts("#panel-program .box .name")
    assert names[0] == "lines 2-6" and len(names) == 20
    frame = tab.page.locator("#panel-program .frame").bounding_box()
    assert frame["y"] + frame["height"] <= 900
    for place in map(tab.page.locator("#panel-program .box").nth, range(20)):
        box = place.bounding_box()
        assert frame["x"] <= box["x"] and box["y"] + box["height"] <= frame["y"] + frame["height"]
    assert set(tab.run("[...document.querySelectorAll('.box rect[fill]')].map((e) => e.getAttribute('fill'))")) == {
        "var(--heat)"
    }
    box = "document.querySelector('#panel-program svg').getAttribute('viewBox')"
    whole = tab.run(box)
    tab.page.focus("#panel-program .frame")
    for key in ("+", "ArrowRight"):
        before = tab.run(box)
        tab.page.keyboard.press(key)
        assert tab.run(box) != before
    tab.page.keyboard.press("0")
    assert tab.run(box) == whole
    tab.page.mouse.move(frame["x"] + 5, frame["y"] + 5)
    tab.page.mouse.down()
    tab.page.mouse.move(frame["x"] + 90, frame["y"] + 60)
    tab.page.mouse.up()
    assert tab.run(box) != whole
    tab.page.click("#panel-program button[aria-label='fit to the window']")
    tab.page.locator("#panel-program .box").first.click()
    assert len(tab.texts("#panel-program .box .name")) == 5
    is_quiet(tab)


@pytest.mark.parametrize("text", [LAYERS, DATA_PARALLEL, LOOP])
def test_bytes_between_ranks_are_those_that_are_predicted(tab: Tab, folder: Path, text: str) -> None:
    data = opened(tab, folder, shown(text))
    total = tab.run("view.traffic(view.data, view.data.collectives).total")
    assert total == pytest.approx(sum(data["prediction"]["levels"].values()))
    tab.show("communication")
    cells = [float(each) for each in tab.run("[...document.querySelectorAll('.heat')].map((e) => e.dataset.bytes)")]
    assert len(cells) == data["grid"]["size"] ** 2 and sum(cells) == pytest.approx(total)


def test_what_is_selected_in_one_panel_is_selected_in_all(tab: Tab, folder: Path) -> None:
    data = opened(tab, folder, shown(LAYERS))
    tab.show("communication")
    tab.page.click("#panel-communication tr[data-collective='1']")
    op = data["collectives"][1]["op"]
    assert tab.page.get_attribute("#details", "data-op") == str(op)
    assert "Why it is there" in tab.texts("#details h4")
    tab.show("program")
    assert tab.page.get_attribute("#panel-program .box.selected", "data-op") == str(op)
    tab.show("grid")
    colours = tab.run("[...document.querySelectorAll('.cell rect')].map((e) => e.getAttribute('fill'))")
    rows = data["groups"][data["collectives"][1]["groups"]]["rows"]
    for members in rows:
        assert len({colours[rank] for rank in members}) == 1
    assert len(set(colours)) == len(rows)
    tab.show("time")
    assert tab.page.locator("#panel-time .bar.selected").count() >= 1
    tab.show("arrays")
    tab.page.locator("#panel-arrays .block").last.click()
    tab.show("grid")
    assert tab.page.locator("#panel-grid .cell.selected").count() == 1
    is_quiet(tab)


def test_the_page_opens_on_one_screen_whose_parts_lead_to_their_panels(tab: Tab, folder: Path) -> None:
    data = opened(tab, folder, shown(LAYERS))
    assert tab.page.get_attribute("#tab-overview", "aria-selected") == "true"
    assert tab.run("document.documentElement.scrollHeight <= innerHeight")
    slowest = max(data["collectives"], key=lambda each: each["seconds"])
    assert tab.texts(".card[data-panel=program] tbody b")[0] == slowest["kind"]
    for panel in ("time", "grid", "program", "memory", "communication"):
        tab.show("overview")
        tab.page.click(f".card[data-panel={panel}] h2 button")
        assert tab.page.get_attribute(f"#tab-{panel}", "aria-selected") == "true"
    tab.show("overview")
    heaviest = max(data["collectives"], key=lambda each: sum(message["sent"] for message in each["messages"]))
    tab.page.click(".card[data-panel=communication] tbody tr >> nth=0")
    assert tab.page.get_attribute("#details", "data-op") == str(heaviest["op"])
    assert tab.page.locator("#panel-communication tr.selected").count() == 1
    assert tab.texts("#panel-communication tr.selected td")[2] == "[0,2],[1,3]"
    is_quiet(tab)


def test_keys_do_what_the_mouse_does(tab: Tab, folder: Path) -> None:
    opened(tab, folder, shown(LAYERS))
    keyboard = tab.page.keyboard
    keyboard.press("5")
    assert tab.page.get_attribute("#tab-communication", "aria-selected") == "true"
    keyboard.press("ArrowLeft")
    assert tab.page.get_attribute("#tab-program", "aria-selected") == "true"
    keyboard.press("2")
    tab.page.focus("#panel-grid .cell[data-rank='2']")
    keyboard.press("Enter")
    assert tab.run("view.selection.rank") == 2
    keyboard.press("Escape")
    assert tab.run("view.selection.rank") == -1
    keyboard.press("7")
    tab.page.focus("#time-picture .scroll")
    before = tab.texts("#time-picture .small")
    keyboard.press("+")
    assert tab.texts("#time-picture .small") != before
    is_quiet(tab)


@pytest.mark.parametrize("panel", PANELS[1:])
def test_saved_pictures_are_well_formed_and_stand_alone(tab: Tab, folder: Path, panel: str) -> None:
    opened(tab, folder, shown(LAYERS))
    tab.show(panel)
    with tab.page.expect_download() as download:
        tab.page.locator(f"#panel-{panel} .save").first.click()
    path = folder / f"{panel}.svg"
    download.value.save_as(path)
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.attrib["aria-label"]
    assert all("var(" not in value for node in root.iter() for value in node.attrib.values())


def test_pictures_have_names_and_what_is_clicked_can_be_reached_by_keys(tab: Tab, folder: Path) -> None:
    opened(tab, folder, shown(LAYERS))
    for panel in PANELS:
        tab.show(panel)
        names = tab.run(
            f"[...document.querySelectorAll('#panel-{panel} svg')].map((e) => e.getAttribute('aria-label'))"
        )
        assert names and all(names)
        assert tab.run(
            f"[...document.querySelectorAll('#panel-{panel} .cell, .block, .box')].every((e) => e.tabIndex >= 0)"
        )


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window_in_either_theme(tab: Tab, folder: Path, width: int, scheme: str) -> None:
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.set_viewport_size({"width": width, "height": 800})
    try:
        opened(tab, folder, shown(LAYERS))
        for panel in PANELS:
            tab.show(panel)
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), panel
        paper = tab.run("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    finally:
        tab.page.emulate_media(color_scheme="light")
        tab.page.set_viewport_size({"width": 1300, "height": 900})


def test_steps_of_a_run_go_forwards_and_backwards(tab: Tab, folder: Path) -> None:
    opened(tab, folder, shown(LOOP, run=True))
    tab.show("values")
    first = tab.texts("#panel-values b")[0]
    tab.page.click("#values-next")
    assert tab.texts("#panel-values b")[0] != first
    tab.page.keyboard.press("ArrowLeft")
    assert tab.texts("#panel-values b")[0] == first
    assert tab.page.locator("#panel-values tbody tr[data-rank]").count() == 4
    is_quiet(tab)


def test_many_elements_are_a_heat_map_with_a_corner_that_is_moved(tab: Tab, folder: Path) -> None:
    text = """func.func @main(%x: tensor<40x30xf32>) -> tensor<40x30xf32> {
      %0 = stablehlo.negate %x : tensor<40x30xf32>
      return %0 : tensor<40x30xf32>
    }"""
    data = opened(tab, folder, spmd.view(spmd.parse(text), run=True))
    encoded = data["run"]["steps"][0]["values"][0][0][1]
    values = np.frombuffer(base64.b64decode(encoded), "<f4").reshape(40, 30)
    tab.show("values")
    cells = "#panel-values td.after .elements td"
    assert tab.page.locator("#panel-values canvas").count() == 2
    assert [float(text) for text in tab.texts(cells)] == pytest.approx(values[:8, :8].ravel().tolist(), rel=6e-3)
    tab.page.locator("#panel-values td.after .map").focus()
    for key in ("ArrowDown", "Shift+ArrowRight"):
        tab.page.keyboard.press(key)
    for each in ("td.after", "td:not(.after)"):
        assert tab.texts(f"#panel-values {each} .elements th")[1] == "8"
    assert [float(text) for text in tab.texts(cells)] == pytest.approx(values[1:9, 8:16].ravel().tolist(), rel=6e-3)
    is_quiet(tab)


def test_two_programs_are_set_side_by_side(tab: Tab, folder: Path) -> None:
    module = spmd.parse(LAYERS, verify=False)
    other = spmd.parse(LAYERS.replace('[{"data"}, {}]', "[{}, {}]"), verify=False)
    view = spmd.view(module, other)
    opened(tab, folder, view)
    assert tab.page.get_attribute("#tab-compare", "aria-selected") == "true"
    rows = [row.split("\t") for row in tab.page.locator("#panel-compare tbody tr").all_inner_texts()]
    told = {row[0]: row[1:] for row in rows}
    seconds = [duration(each["prediction"]["seconds"]).replace("us", "µs") for each in view.documents]
    assert told["a step"][:2] == seconds
    assert "argument 0" in told and "argument 1" not in told
    tab.page.click(".switch button >> nth=1")
    tab.show("grid")
    assert tab.run("view.number") == 1
    is_quiet(tab)


def test_a_trace_is_shown_under_what_is_predicted(tab: Tab, folder: Path) -> None:
    events = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "rank 0 <b>"}}]
    events += [
        {"name": "stablehlo.tanh", "cat": "x", "ph": "X", "ts": 5.0 + n, "dur": 0.5, "pid": 0, "tid": 0, "args": {}}
        for n in range(3)
    ]
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    opened(tab, folder, spmd.view(spmd.parse(LAYERS, verify=False), profile=trace))
    tab.show("time")
    assert "rank 0 <b>" in [text.partition("measured")[0] for text in tab.texts("#time-picture .small")]
    is_quiet(tab)


# --- blocks and their owners ---

AXES = ['"x"', '"y"', '"z"', '"x":(1)2', '"x":(2)2']
MESHES = {
    "mesh": '["x"=4, "y"=2, "z"=3]',
    "turned": f'["x"=4, "y"=2, "z"=3], device_ids={list(range(23, -1, -1))}',
}


@st.composite
def sharded_arguments(draw: st.DrawFn) -> str:
    """A program of many arguments, each laid out in a way of its own over one of the meshes."""
    mesh = draw(st.sampled_from(list(MESHES)))
    arguments = []
    for number in range(16):
        shape = draw(st.lists(st.integers(0, 13), max_size=4))
        free = draw(st.permutations(['"x"', '"y"', '"z"'] if draw(st.booleans()) else ['"x":(1)2', '"z"', '"x":(2)2']))
        dims: list[list[str]] = [[] for _ in shape]
        for axis in free if shape else ():
            place = draw(st.integers(-1, len(shape) - 1))
            if place >= 0:
                dims[place].append(axis)
        told = ", ".join("{" + ", ".join(_joined(axes)) + "}" for axes in dims)
        kind = "x".join([*map(str, shape), draw(st.sampled_from(["f32", "i8", "bf16", "i1"]))])
        arguments.append(f"%a{number}: tensor<{kind}> {{sdy.sharding = #sdy.sharding<@mesh, [{told}]>}}")
    return f"""
module {{
  sdy.mesh @mesh = <{MESHES[mesh]}>
  func.func @main({", ".join(arguments)}) -> tensor<f32> {{
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    return %0 : tensor<f32>
  }}
}}
"""


def _joined(axes: list[str]) -> list[str]:
    """Neighbouring parts of an axis that make the whole are written as the whole."""
    text = " ".join(axes).replace('"x":(1)2 "x":(2)2', '"x"')
    return text.split()


_JS_PARTS = """view.data.values.filter((v) => v.argument >= 0).map((v) => {
  const whole = view.data.globals[v.whole];
  const ranks = Array.from({length: view.data.grid.size}, (_, rank) => rank);
  return ranks.map((rank) => view.sharding.part(view.data, v.sharding, whole.shape, rank));
})"""


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(sharded_arguments())
def test_owners_of_blocks_are_those_of_shard(tab: Tab, folder: Path, text: str) -> None:
    module = spmd.parse(text)
    executable = spmd.compile(module, spmd.ProcessGrid(1, 24))
    opened(tab, folder, spmd.view(module))
    drawn = tab.run(_JS_PARTS)
    assert executable.in_shardings is not None
    for layout, parts in zip(executable.in_shardings, drawn, strict=True):
        for rank, part in enumerate(parts):
            asked: list[Any] = []

            def block(index: tuple[slice, ...], asked: list[Any] = asked, dtype: Any = layout.type.dtype) -> np.ndarray:  # type: ignore[attr-defined]
                asked.append([[each.start, each.stop] for each in index])
                return np.zeros([each.stop - each.start for each in index], dtype)

            shard_array(block, layout, rank)
            assert asked == [part]


def test_the_blocks_that_are_drawn_are_those_of_their_owners(tab: Tab, folder: Path) -> None:
    opened(tab, folder, shown(LAYERS))
    tab.run("view.select({value: 2})")
    tab.show("arrays")
    blocks = tab.run("[...document.querySelectorAll('.block')].map((e) => [e.dataset.owners, e.dataset.part])")
    assert blocks == [["0,2", "[[0,8],[0,5]]"], ["1,3", "[[8,16],[0,5]]"]]
