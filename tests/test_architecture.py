"""The map for newcomers names files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_file_that_the_map_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"[a-z_]+/[a-z_/]*[a-z_]\.py|(?:spmd|partitioner|collectives|launch)/[a-z_/]*/", text))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    folders = (ROOT / "spmd/backends/llvm", ROOT / "spmd/compiler/schedule")
    inside = {file.name for folder in folders for file in folder.rglob("*.py")}
    assert set(re.findall(r"`([a-z_]+\.py)`", text)) - inside == set()


def test_every_area_of_tests_has_its_line_for_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = {
        name for row in re.findall(r"^\| (`tests.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)
    }
    areas = {f"tests/{folder.name}" for folder in (ROOT / "tests").iterdir() if any(folder.glob("test_*.py"))}
    assert areas - named == {"tests/benchmarks"}
    assert [name for name in named if not (ROOT / name).exists()] == []
