"""Docstrings, comments and help texts are in the words of the field: none has a word of this list."""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spmd", "collectives", "partitioner", "launch", "jax_plugins", "benchmarks", "examples")
WORDS = re.compile(
    r"\b(nobody|whoever|whomever|lent|told|turned)\b|\b(code|program|function)s? (ask|know|want)s\b", re.IGNORECASE
)


def prose(file: Path) -> list[tuple[int, str]]:
    """The comments and strings of a file that stand alone, which are docstrings, with their lines."""
    found, before = [], tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        alone = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and alone):
            found.append((token.start[0], token.string))
        if token.type != tokenize.COMMENT:
            before = token.type
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_prose_has_none_of_these_words(package: str) -> None:
    assert [
        f"{file.relative_to(ROOT)}:{line}: {match[0]}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, text in prose(file)
        for match in WORDS.finditer(text)
    ] == []
