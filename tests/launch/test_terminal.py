"""What commands write to a terminal, and that anything else gets plain text."""

from __future__ import annotations

import functools
import io
import queue
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import progress, terminal
from launch.cli import main
from spmd.predict.report import duration
from tests.clocks import WATCHDOG_SECONDS, Clock, until
from tests.predict.programs import DATA_PARALLEL
from tests.viewing.programs import LAYERS, shown

_STYLE = re.compile(r"\x1b\[([0-9;]*)m")


class Terminal(io.StringIO):
    """What a command takes for a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard output a terminal, when called in a test: pytest puts its own in place before each."""
    pytest.importorskip("rich", reason="rich is not installed (extra `view`)")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def replaced() -> Terminal:
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    return replaced


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "p.mlir"
    path.write_text(DATA_PARALLEL)
    return str(path)


@pytest.fixture
def layers(tmp_path: Path) -> str:
    path = tmp_path / "layers.mlir"
    path.write_text(LAYERS)
    return str(path)


def styles(text: str) -> set[str]:
    return {code for found in _STYLE.findall(text) for code in found.split(";")}


def is_coloured(text: str) -> bool:
    return any(re.fullmatch(r"(3|4|9|10)[0-7]|38|48", code) for code in styles(text))


def test_numbers_on_a_terminal_are_those_of_the_plain_text(
    screen: Callable[[], Terminal], program: str, layers: str
) -> None:
    shown_text = screen()
    assert main(["predict", program]) == 0
    data = shown(DATA_PARALLEL).documents[0]["prediction"]
    assert duration(data["seconds"]) in shown_text.getvalue() and duration(data["computing"]) in shown_text.getvalue()
    assert is_coloured(shown_text.getvalue())
    assert main(["explain", program]) == 0
    assert "8.19 kB" in shown_text.getvalue() and "[0, 1, 2, 3]" in shown_text.getvalue()
    assert main(["partition", layers, "--table"]) == 0
    assert "tensor<8x6xf32>" in shown_text.getvalue() and "total all_reduce" in shown_text.getvalue()
    assert main(["info", program]) == 0


def test_no_color_is_heeded(screen: Callable[[], Terminal], program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown_text = screen()
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["predict", program]) == 0
    assert shown_text.getvalue() and not is_coloured(shown_text.getvalue())


def test_texts_are_no_markup(screen: Callable[[], Terminal]) -> None:
    shown_text = screen()
    table = terminal.Table("[red]t[/red]", [terminal.Column("[bold]c")])
    table.add("[link=x]y[/link] \x1b]0;title\x07")
    terminal.show(table, "[green]line")
    plain = _STYLE.sub("", shown_text.getvalue())
    for text in ("[red]t[/red]", "[bold]c", "[link=x]y[/link]", "[green]line"):
        assert text in plain
    assert "\x07" not in plain and "\x1b" not in plain


def test_what_is_no_terminal_gets_no_style(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explain", "predict", "info"):
        assert main([command, program]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out and err == ""


@pytest.mark.parametrize(
    ("part", "width", "text"), [(0, 4, ""), (1, 4, "████"), (0.5, 4, "██"), (0.53, 4, "██▏"), (2, 1, "█")]
)
def test_bars_are_as_long_as_the_part(part: float, width: int, text: str) -> None:
    assert terminal.bar(part, width) == text


def test_arrays_are_shown_as_blocks(layers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", layers, "--grid", "1x4", "--arrays"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'argument 0: tensor<8x6xf32> [{"data"}, {}], a block is tensor<4x6xf32> of 96 B'
    assert [line.split() for line in lines[1:4]] == [["0:6"], ["0:4", "0-1"], ["4:8", "2-3"]]
    assert sum(line.startswith(("argument", "result")) for line in lines) == 5


# --- progress ---


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard error a terminal, when called in a test, on which progress is shown without waiting."""
    hasty = functools.partial(progress.Progress, wait=lambda done, _: done.wait(0.001))
    monkeypatch.setattr(progress, "Progress", hasty)

    def replaced() -> Terminal:
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return replaced


class Waits:
    """Waits of a line of progress, each of which ends when a test says so: with the end of what is done, or before."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._ends: queue.Queue[bool] = queue.Queue()

    def __call__(self, done: threading.Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self._ends.get(timeout=WATCHDOG_SECONDS)

    def end(self, *, done: bool) -> None:
        self._ends.put(done)


def test_what_takes_long_is_told_and_taken_away() -> None:
    stream, clock, waits = Terminal(), Clock(), Waits()
    told = progress.Progress("checking", stream, 3, clock=clock, wait=waits)
    for told.at, seconds in enumerate((progress.PATIENCE, progress.EVERY), 1):
        clock.now += seconds
        waits.end(done=False)
        until(lambda: f"checking ... {told.at} of 3, {clock.now - 1000:.0f} s" in stream.getvalue())
    waits.end(done=True)
    told.end()
    assert stream.getvalue().endswith("\r\x1b[K")
    assert waits.seconds == [progress.PATIENCE, progress.EVERY, progress.EVERY]


def test_where_there_is_no_terminal_each_update_is_a_line() -> None:
    stream, clock, waits = io.StringIO(), Clock(), Waits()
    told = progress.Progress("pricing layouts", stream, 40, in_lines=True, clock=clock, wait=waits)
    for told.at in (7, 15):
        clock.now += progress.LINES
        waits.end(done=False)
        until(lambda: stream.getvalue().endswith(f" ... {told.at} of 40, {clock.now - 1000:.0f} s\n"))
    waits.end(done=True)
    told.end()
    assert stream.getvalue().count("\n") == 2 and waits.seconds == 3 * [progress.LINES]


def test_what_is_quick_is_not_told() -> None:
    stream, waits = Terminal(), Waits()
    told = progress.Progress("reading", stream, wait=waits)
    waits.end(done=True)
    told.end()
    assert stream.getvalue() == "" and waits.seconds == [progress.PATIENCE]


def test_items_are_told_as_they_are_begun(at_once: Callable[[], Terminal]) -> None:
    stream = at_once()
    for number, _ in enumerate(progress.counted("checking", iter("abc"), 3), 1):
        until(lambda number=number: f"checking ... {number} of 3" in stream.getvalue())  # type: ignore[misc]
    assert stream.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("where", ["another rank", "a pipe"])
def test_only_the_first_rank_on_a_terminal_tells(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal() if where == "another rank" else io.StringIO())
    monkeypatch.setenv("PMIX_RANK", "1" if where == "another rank" else "0")
    with progress.doing("reading") as told:
        assert not told.is_watched


def test_what_fails_takes_its_line_away(at_once: Callable[[], Terminal]) -> None:
    stream = at_once()
    with pytest.raises(ValueError, match="x"), progress.doing("reading"):
        until(stream.getvalue)
        raise ValueError("x")
    assert stream.getvalue().endswith("\r\x1b[K")
