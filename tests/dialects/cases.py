"""Programs of one op that keep all its constraints, and the smallest change that breaks each of them.

Those that need no code stand in text beside this file, family by family, in paragraphs:

    let NAME = what $NAME stands for below
    op its body
        goes on in lines that are further in
      C1: what is changed => what it becomes
      arguments: (and operands, prelude, functions) a field of OpCase, once for each of its lines

A label that stands several times takes all its changes together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

#: A change of a sound program: all places where the first text stands become the second.
Change = tuple[str, str]


@dataclass(frozen=True)
class Unbreakable:
    """Why no program can break a constraint where it is verified."""

    reason: str


#: How a constraint is broken, by its label.
Breaks = Mapping[str, Change | list[Change] | Unbreakable]


@dataclass(frozen=True)
class OpCase:
    """A sound op: `body` is what stands in the generic form after its operands.

    Operands are the function's arguments, whose types are those of the op, unless `arguments` and `operands` say
    otherwise. `prelude` stands before the op, `functions` beside the program's function.
    """

    op: str
    body: str
    breaks: Breaks = field(default_factory=dict)
    arguments: str | None = None
    operands: str | None = None
    prelude: str = ""
    functions: str = ""

    @property
    def text(self) -> str:
        types = _operand_types(self.body)
        names = [f"%a{index}" for index in range(len(types))]
        arguments, operands = self.arguments, self.operands
        if arguments is None:
            arguments = ", ".join(f"{name}: {type}" for name, type in zip(names, types, strict=True))
        if operands is None:
            operands = ", ".join(names)
        results = _result_count(self.body)
        bound = f"%r:{results} = " if results > 1 else "%r = " if results else ""
        return (
            f"{self.functions}\nfunc.func @program({arguments}) {{\n{self.prelude}\n"
            f'{bound}"stablehlo.{self.op}"({operands}) {self.body}\nfunc.return\n}}\n'
        )

    @property
    def operand_types(self) -> list[str]:
        return _operand_types(self.body)

    def with_operand(self, index: int, type: str) -> str:
        """The program whose operand `index` is of `type`."""
        types = self.operand_types
        types[index] = type
        declared = signature(self.body)
        body = f"{self.body.removesuffix(declared)}({', '.join(types)}) -> {declared.rpartition(' -> ')[2]}"
        return OpCase(self.op, body, functions=self.functions).text

    def broken(self, label: str) -> str:
        """The program that breaks constraint `label`."""
        change = self.breaks[label]
        assert not isinstance(change, Unbreakable)
        changes = change if isinstance(change, list) else [change]
        parts = {name: getattr(self, name) for name in ("body", "arguments", "operands", "prelude", "functions")}
        for old, new in changes:
            parts_with_old = [name for name, text in parts.items() if text and old in text]
            assert parts_with_old, f"{self.op} {label}: {old!r} is nowhere in the program"
            parts.update({name: parts[name].replace(old, new) for name in parts_with_old})
        return OpCase(self.op, **parts).text


_FIELDS = ("arguments", "operands", "prelude", "functions")


def read_cases(family: str) -> list[OpCase]:
    """The cases of `family`'s text."""
    text = Path(__file__).with_name(f"{family}.txt").read_text()
    meant: dict[str, str] = {}
    cases = []
    for line in re.sub(r"\n {4,}", " ", text).splitlines():
        line = re.sub(r"\$([A-Z_0-9]+)", lambda name: meant[name[1]], line)
        if line.startswith("let "):
            name, _, meaning = line.removeprefix("let ").partition(" = ")
            meant[name] = meaning
        elif line.startswith("  "):
            key, _, value = line.strip().partition(": ")
            cases[-1] = _completed(cases[-1], key, value)
        elif line and line[0] != "#":
            cases.append(OpCase(*line.split(" ", 1)))
    return cases


def _completed(case: OpCase, key: str, value: str) -> OpCase:
    if key in _FIELDS:
        before = getattr(case, key)
        return replace(case, **{key: f"{before}\n{value}" if before else value})
    old, arrow, new = value.partition(" =>")
    assert arrow, f"{case.op} {key}: {value!r} says of no change"
    changes = case.breaks.get(key, [])
    assert isinstance(changes, list)
    return replace(case, breaks={**case.breaks, key: [*changes, (old, new.strip())]})


def signature(body: str) -> str:
    """The function type after the last ` : (` outside of braces."""
    depth, last = 0, -1
    for match in re.finditer(r"[{}]|: \(", body):
        text = match.group()
        depth += {"{": 1, "}": -1}.get(text, 0)
        if text == ": (" and depth == 0:
            last = match.start() + 2
    return body[last:]


def _operand_types(body: str) -> list[str]:
    return _split(signature(body).rpartition(" -> ")[0].strip()[1:-1])


def _result_count(body: str) -> int:
    results = signature(body).rpartition(" -> ")[2].strip()
    return len(_split(results[1:-1])) if results.startswith("(") else 1


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, "{": 1, ">": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
