"""The errors that a conformance file expects: location and text.

    // expected-error {{...}}              an error at this line
    // expected-error@+1 {{...}}           one line below; also @-1, @7 (line 7), @above, @below, @unknown (no location)
    // expected-error-re {{a {{[0-9]+}}}}  a regular expression inside {{...}}, literal text elsewhere

`@above` and `@below` mean the nearest line without such a mark. Source: MLIR, "Diagnostic Verifier".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spmd.errors import UNKNOWN, Diagnostic

_MARK = re.compile(
    r"//[^\n]*?\bexpected-error(-re)?[ \t]*(?:@[ \t]*([+-]?\d+|above|below|unknown))?[ \t]*(?:(\d+)[ \t]*)?\{\{",
    re.ASCII,
)


@dataclass(frozen=True)
class Expectation:
    """One error: its line (None if it has no location), the text between the braces, and its count."""

    line: int | None
    text: str
    is_pattern: bool = False
    count: int = 1

    @property
    def place(self) -> str:
        return "without a place" if self.line is None else f"at line {self.line}"

    def at(self, diagnostic: Diagnostic) -> bool:
        """Return whether `diagnostic` is at the expected location."""
        if self.line is None:
            return diagnostic.location is UNKNOWN
        return diagnostic.location is not UNKNOWN and diagnostic.location.line == self.line

    def says(self, diagnostic: Diagnostic) -> bool:
        """Return whether `diagnostic` has the expected text; ValueError for an invalid pattern."""
        message = spoken(diagnostic)
        return _pattern(self.text).search(message) is not None if self.is_pattern else self.text in message


def spoken(diagnostic: Diagnostic) -> str:
    """Return an error's text without its location."""
    return diagnostic.headline.removeprefix(f"{diagnostic.location}: ")


def _pattern(text: str) -> re.Pattern[str]:
    """Return `text` as a pattern, with regular expressions in `{{...}}`."""
    parts = re.split(r"\{\{(.*?)\}\}", text)
    joined = "".join(f"({part})" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    try:
        return re.compile(joined)
    except re.error as error:
        raise ValueError(f"{{{{{text}}}}} is not a valid pattern: {error}") from None


def expectations(text: str) -> list[Expectation]:
    """Return the errors that `text` expects, in the order of their marks."""
    expected: list[Expectation] = []
    below: list[tuple[int, re.Match[str], str]] = []  # marks for the next line without one
    plain = 0  # the last line without a mark
    for number, line in enumerate(text.splitlines(), 1):
        marks = list(_MARK.finditer(line))
        if not marks:
            expected += [_expectation(number, mark, words) for _, mark, words in below]
            below, plain = [], number
            continue
        ends = [mark.start() for mark in marks[1:]] + [len(line)]
        for mark, end in zip(marks, ends, strict=True):
            words = line[mark.end() : end].rpartition("}}")[0]
            if mark[2] == "below":
                below.append((number, mark, words))
            else:
                expected.append(_expectation(_line(mark[2] or "+0", number, plain), mark, words))
    return expected + [_expectation(number + 1, mark, words) for number, mark, words in below]


def _expectation(line: int | None, mark: re.Match[str], words: str) -> Expectation:
    return Expectation(line, words, bool(mark[1]), int(mark[3] or 1))


def _line(place: str, number: int, plain: int) -> int | None:
    if place == "unknown":
        return None
    if place == "above":
        return plain
    return number + int(place) if place[0] in "+-" else int(place)


def unmet_places(expected: Sequence[Expectation], diagnostics: Sequence[Diagnostic]) -> str | None:
    """Compare errors by line only, and return what is missing; additional errors are accepted."""
    missed = [entry.place for entry in expected if not any(entry.at(diagnostic) for diagnostic in diagnostics)]
    return f"no error {', '.join(dict.fromkeys(missed))}, where one is expected" if missed else None


def unmet_words(expected: Sequence[Expectation], diagnostics: Sequence[Diagnostic]) -> str | None:
    """Compare errors one by one, by line and text as MLIR's -verify-diagnostics does, and return the first mismatch."""
    left = list(diagnostics)
    for entry in expected:
        for _ in range(entry.count):
            try:
                met = next((diagnostic for diagnostic in left if entry.at(diagnostic) and entry.says(diagnostic)), None)
            except ValueError as error:
                return str(error)
            if met is None:
                return f"no error {entry.place} that says {{{{{entry.text}}}}}"
            left.remove(met)
    return f"an error that is not expected: {left[0].headline}" if left else None
