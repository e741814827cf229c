"""The documentation's pages: their length, their links, and that nothing public is missing from them."""

import re
from pathlib import Path

import pytest

import spmd
import spmd.checkpoint
import spmd.jax
from launch import cli
from spmd.compiler.pipeline.options import CompileOptions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
#: The words that a page may have, by its folder.
MOST_WORDS = {"start": 600, "concepts": 800, "howto": 500, "development/decisions": 200}


def prose(page: Path) -> str:
    """A page's text without its front matter and code."""
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(), flags=re.DOTALL)
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("folder", MOST_WORDS)
def test_pages_have_at_most_the_words_that_their_place_allows(folder: str) -> None:
    words = {page.name: len(prose(page).split()) for page in (DOCS / folder).glob("*.md")}
    assert words
    assert {name: count for name, count in words.items() if count > MOST_WORDS[folder]} == {}


def test_every_link_between_files_resolves() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(page))
        if not target.startswith("http") and not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {
        (page.parent / entry).resolve()
        for page in PAGES
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL)
        for entry in re.findall(r"^[a-z][\w/]*$", block, re.MULTILINE)
    }
    pages = {page.with_suffix("").resolve() for page in PAGES} - {(DOCS / "index").resolve()}
    assert pages <= listed, sorted(pages - listed)


@pytest.mark.parametrize("package", [spmd, spmd.jax, spmd.checkpoint], ids=lambda package: package.__name__)
def test_every_public_name_is_on_a_page(package: object) -> None:
    text = "\n".join(page.read_text() for page in (DOCS / "reference").rglob("*.md"))
    names = [name for name in package.__all__ if name not in ("checkpoint", "elastic", "jax")]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_every_option_of_compilation_is_on_its_page() -> None:
    page = (DOCS / "reference" / "compile_options.md").read_text()
    assert re.findall(r"^\| `(\w+)`", page, re.MULTILINE) == list(CompileOptions.__annotations__)


def test_every_variable_that_users_set_is_on_its_page() -> None:
    own = re.compile(r"\"((?:SPMD|COLLECTIVE)_[A-Z_]+)\"")
    used = {
        name
        for package in ("spmd", "collectives", "partitioner", "launch")
        for file in (ROOT / package).rglob("*.py")
        for name in own.findall(file.read_text())
    }
    between_processes = {name for name in used if re.match(r"SPMD_(ELASTIC|FAILURE|RANK)_", name)}
    page = (DOCS / "reference" / "environment.md").read_text()
    assert [name for name in sorted(used - between_processes) if f"`{name}`" not in page] == []


def test_every_command_is_on_a_page_that_shows_it() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in cli.command_names() if f"spmd {name}" not in text] == []


#: Pages with commands that are shown and not run when the site is built, and why.
SHOWN_ONLY = {
    "start/installation.md": "installs packages, and loads a cluster's modules",
    "start/from_pytorch.md": "installs PyTorch",
    "howto/cluster.md": "needs hosts, Slurm or containers: tests/cluster starts jobs on two hosts and under Slurm",
    "howto/lost_ranks.md": "kills ranks: tests/elastic runs this script and others",
    "howto/pipelined.md": "Open MPI's mpirun does not start as root: tests/launch runs programs that differ by rank",
    "howto/predict.md": "measures this machine for a minute: tests/launch/test_predict.py runs both commands",
}


def test_commands_that_are_not_run_have_a_reason() -> None:
    shown = {str(page.relative_to(DOCS)) for page in PAGES if re.search(r"^```sh$", page.read_text(), re.MULTILINE)}
    assert shown == set(SHOWN_ONLY)
