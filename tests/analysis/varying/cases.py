"""The corpus of distributed programs: each with a mistake, and put right.

A file of `corpus/` has cases between lines `// -----`. A case is written as a change that puts it right: lines that
begin with `-` are of the faulty program alone, with `+` of the right one. It begins with what it is, and the options of
`spmd check` (`//-` and `//+` lines are options of one of the two):

    // one branch has no collective; grid=4x1 args=0 results=0

A line of the faulty program that ends in `//! KIND {{TEXT}}` is where the finding must stand, `KIND` certain, or
`KIND?` suspected, its message having `TEXT`. Programs are StableHLO's text with abbreviations (`_FORMS`), one line
each as well. Several programs in a case begin with `== N NAME`: N processes run each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
_TYPES = {
    "v": "4xf32",
    "s": "f32",
    "i": "i32",
    "u": "ui32",
    "b": "i1",
    "m": "4x4xf32",
    "w": "16xf32",
    "q": "1xf32",
    "h": "2xf32",
    "k": "2xui64",
    "n": "4xui32",
    "l": "4xi1",
    "d": "8x4xf32",
    "e": "4xbf16",
    "t": "4xi32",
}
_PRELUDE = " ".join(f"!{name} = tensor<{type}>" for name, type in _TYPES.items()) + " "


@dataclass(frozen=True)
class Expected:
    """What must be found: the kind, whether it is certain, where, and a text that the message has."""

    kind: str
    certain: bool
    line: int
    text: str


@dataclass(frozen=True)
class Variant:
    """One of a case's two programs, or sets of programs: (processes, name, text) each."""

    programs: tuple[tuple[int, str, str], ...]
    options: dict[str, str]
    expected: Expected | None

    def numbers(self, option: str) -> tuple[int, ...]:
        return tuple(int(each) for each in self.options.get(option, "").split(",") if each)


@dataclass(frozen=True)
class Case:
    name: str
    faulty: Variant
    right: Variant


def cases() -> Iterator[Case]:
    """All cases of the corpus, in order."""
    for path in sorted(FOLDER.glob("*.txt")):
        line = 1
        for part in re.split(r"^// -----\n", path.read_text(), flags=re.MULTILINE):
            yield _case(path, line, part)
            line += part.count("\n") + 1


def _case(path: Path, first: int, text: str) -> Case:
    lines = text.rstrip("\n").split("\n")
    title, _, options = lines[0].removeprefix("//").partition(";")
    name = f"{path.stem}:{first} {title.strip()}"
    return Case(name, *(_variant(lines[1:], sign, options) for sign in "-+"))


def _variant(lines: list[str], sign: str, options: str) -> Variant:
    programs: list[tuple[int, str, list[str]]] = []
    given = dict(each.split("=") for each in options.split())
    expected = None
    for number, line in enumerate(lines, 2):
        mine = line[:1] == sign or line[:1] not in ("-", "+")
        if line.startswith(("//-", "//+")):
            given.update(each.split("=") for each in line[3:].split() if line[2] == sign)
            continue
        if line.startswith("== "):
            count, program = line[3:].split()
            programs.append((int(count), program, ["\n" * (number - 1)]))
            continue
        if not programs:
            programs.append((1, "case.mlir", ["\n" * (number - 2)]))
        code, _, told = (line[1:] if line[:1] in ("-", "+") else line).partition("//!")
        programs[-1][2].append(_expanded(code) if mine else "")
        if told and mine and sign == "-":
            kind, _, text = told.strip().partition(" ")
            expected = Expected(kind.removesuffix("?"), not kind.endswith("?"), number, text.strip("{} "))
    texts = [(count, program, _PRELUDE + "\n".join(code)) for count, program, code in programs]
    return Variant(tuple(texts), given, expected)


def _groups(text: str) -> str:
    """`[[0, 1], [2, 3]]` as dense elements."""
    rows = text.count("[") - 1
    return f"dense<{text}> : tensor<{rows}x{(text.count(',') + 1) // rows}xi64>"


def _region(kind: str, type: str) -> str:
    scalar = f"tensor<{_TYPES[type].rpartition('x')[2]}>"
    return (
        f"({{ ^bb0(%l_: {scalar}, %r_: {scalar}): %c_ = stablehlo.{_KINDS[kind]} %l_, %r_ : {scalar} "
        f"stablehlo.return %c_ : {scalar} }})"
    )


_KINDS = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply", "any": "or", "all": "and"}


def _all_reduce(match: re.Match[str]) -> str:
    kind, groups, value, type = match.groups()
    given = f"replica_groups = {_groups(groups)}"
    return f'"stablehlo.all_reduce"({value}) <{{{given}}}> {_region(kind, type)} : (!{type}) -> !{type}'


def _reduce_scatter(match: re.Match[str]) -> str:
    groups, value, type, result = match.groups()
    given = f"replica_groups = {_groups(groups)}, scatter_dimension = 0 : i64"
    return f'"stablehlo.reduce_scatter"({value}) <{{{given}}}> {_region("sum", type)} : (!{type}) -> !{result}'


def _all_gather(match: re.Match[str]) -> str:
    groups, value, type, result = match.groups()
    given = f"replica_groups = {_groups(groups)}, all_gather_dim = 0 : i64"
    return f'"stablehlo.all_gather"({value}) <{{{given}}}> : (!{type}) -> !{result}'


def _all_to_all(match: re.Match[str]) -> str:
    groups, value, type = match.groups()
    count = (groups.count(",") + 1) // (groups.count("[") - 1)
    given = f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {count} : i64"
    return f'"stablehlo.all_to_all"({value}) <{{{given}, replica_groups = {_groups(groups)}}}> : (!{type}) -> !{type}'


def _permuted(match: re.Match[str]) -> str:
    op, groups, value, type = match.groups()
    name, given = {
        "permute": ("collective_permute", "source_target_pairs"),
        "broadcast": ("collective_broadcast", "replica_groups"),
    }[op]
    return f'"stablehlo.{name}"({value}) <{{{given} = {_groups(groups)}}}> : (!{type}) -> !{type}'


def _send(match: re.Match[str]) -> str:
    channel, pairs, value, token, type = match.groups()
    given = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"
    given += f", source_target_pairs = {_groups(pairs)}" if pairs else ""
    return f'"stablehlo.send"({value}, {token}) <{{{given}}}> : (!{type}, !stablehlo.token) -> !stablehlo.token'


def _recv(match: re.Match[str]) -> str:
    channel, pairs, token, type = match.groups()
    given = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"
    given += f", source_target_pairs = {_groups(pairs)}" if pairs else ""
    return f'"stablehlo.recv"({token}) <{{{given}}}> : (!stablehlo.token) -> (!{type}, !stablehlo.token)'


def _reduce(match: re.Match[str]) -> str:
    kind, value, axes, type, result = match.groups()
    scalar = _TYPES[type].rpartition("x")[2]
    return (
        f"stablehlo.reduce({value} init: %zero) applies stablehlo.{_KINDS[kind]} across dimensions = [{axes}] : "
        f"(!{type}, tensor<{scalar}>) -> !{result}"
    )


def _spread(match: re.Match[str]) -> str:
    value, axes, type, result = match.groups()
    return f"stablehlo.broadcast_in_dim {value}, dims = [{axes}] : (!{type}) -> !{result}"


def _dot(match: re.Match[str]) -> str:
    left, right, axes, *types = match.groups()
    return (
        f"stablehlo.dot_general {left}, {right}, contracting_dims = {axes} : (!{types[0]}, !{types[1]}) -> !{types[2]}"
    )


_GROUPS, _PAIRS = r"(\[\[.*?\]\])", r"(?:(\[\[.*?\]\]) )?"
#: Abbreviations: `%g = sum [[0, 1]] %x : !v` is an all_reduce, and so on.
_FORMS = (
    (re.compile(rf"\b({'|'.join(_KINDS)}) {_GROUPS} (%[\w#]+) : !(\w)"), _all_reduce),
    (re.compile(rf"\breduce_scatter {_GROUPS} (%\w+) : !(\w) -> !(\w)"), _reduce_scatter),
    (re.compile(rf"\bgather {_GROUPS} (%\w+) : !(\w) -> !(\w)"), _all_gather),
    (re.compile(rf"\bexchange {_GROUPS} (%\w+) : !(\w)"), _all_to_all),
    (re.compile(rf"\b(permute|broadcast) {_GROUPS} (%\w+) : !(\w)"), _permuted),
    (re.compile(rf"\bsend (\d+) {_PAIRS}(%\w+) (%\w+) : !(\w)"), _send),
    (re.compile(rf"\brecv (\d+) {_PAIRS}(%\w+) : !(\w)"), _recv),
    (re.compile(rf"\breduce ({'|'.join(_KINDS)}) (%\w+) \[([\d, ]*)\] : !(\w) -> !(\w)"), _reduce),
    (re.compile(r"\bspread (%\w+) \[([\d, ]*)\] : !(\w) -> !(\w)"), _spread),
    (re.compile(r"\bdot (%\w+), (%\w+), (\[\d\] x \[\d\]) : !(\w), !(\w) -> !(\w)"), _dot),
    (re.compile(r"\bconst ([^:]+) : (\S+)"), r"stablehlo.constant dense<\1> : \2"),
    (
        re.compile(r"\b(LT|LE|GT|GE|EQ|NE) (%[\w#]+), (%[\w#]+) : !(\w) -> !(\w)"),
        r"stablehlo.compare \1, \2, \3 : (!\4, !\4) -> !\5",
    ),
    (re.compile(r"^(\s*)main\("), r"\1func.func @main("),
    (re.compile(r"^(\s*)yield\b"), r"\1stablehlo.return"),
    (re.compile(r"\bif (%\w+) \(\{"), r'"stablehlo.if"(\1) ({'),
    (re.compile(r"\bcase (%\w+) \(\{"), r'"stablehlo.case"(\1) ({'),
    (re.compile(r"= token$"), "= stablehlo.create_token : !stablehlo.token"),
    (re.compile(r"= ([a-z_]+)(?= ?[%(:])(?!\()"), r"= stablehlo.\1"),
)


def _expanded(line: str) -> str:
    line = line.rstrip()
    for pattern, form in _FORMS:
        line = pattern.sub(form, line)
    return line
