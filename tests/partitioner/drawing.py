"""A random program while it is drawn: its values, its lines with and without shardings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps

import numpy as np

SIZES = (1, 2, 3, 4, 5, 6, 8, 12)
Shape = tuple[int, ...]


@dataclass
class DrawnProgram:
    random: np.random.Generator
    mesh: tuple[tuple[str, int], ...]
    #: Whether shardings say all that they can: priorities, replicated and unreduced axes, too.
    rich: bool = False
    arguments: list[tuple[Shape, str]] = field(default_factory=list)
    values: list[tuple[str, Shape]] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)  # with shardings, without
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def below(self, limit: int) -> int:
        return int(self.random.integers(limit))

    def pick(self, entries):  # type: ignore[no-untyped-def]
        return entries[self.below(len(entries))]

    def sharding(self, rank: int) -> str:
        """Dimension shardings with axes dealt out at random, parts of axes among them.

        Rich ones have priorities, too, and what is left of the axes may be replicated or unreduced.
        """
        parts: list[str] = []
        for name, size in self.mesh:
            if size == 4 and self.random.random() < 0.2:
                parts += [f'"{name}":(1)2', f'"{name}":(2)2']
            elif size == 8 and self.random.random() < 0.2:
                parts += [f'"{name}":(1)2', f'"{name}":(2)4']
            else:
                parts.append(f'"{name}"')
        dimensions: list[list[str]] = [[] for _ in range(rank)]
        left: list[int] = []
        for index in self.random.permutation(len(parts)):
            place = self.below(rank + 1)
            if place < rank:
                dimensions[place].append(parts[index])
            else:
                left.append(index)
        texts = []
        for axes in dimensions:
            merged = _merge(axes)
            opened = ["?"] if self.random.random() < 0.3 else []
            priority = f"p{self.below(3)}" if self.rich and merged + opened and self.random.random() < 0.3 else ""
            texts.append("{" + ", ".join(merged + opened) + "}" + priority)
        others = ""
        for kind in ("replicated", "unreduced") if self.rich else ():
            chosen = [index for index in left if self.random.random() < 0.3]
            left = [index for index in left if index not in chosen]
            if chosen:
                others += f", {kind}={{{', '.join(_merge([parts[index] for index in sorted(chosen)]))}}}"
        return f"<@mesh, [{', '.join(texts)}]{others}>"

    def emit(self, text: str, shape: Shape, element: str = "f32") -> str:
        """Adds an op whose right side is `text`; its result may get a constraint."""
        name = self.name()
        self.write(f"{name} = {text}")
        if element != "f32":
            return name
        if shape and self.random.random() < 0.4:
            result_name = self.name()
            constraint = f"sdy.sharding_constraint {name} {self.sharding(len(shape))} : {tensor(shape)}"
            # The program without shardings has the value itself under the new name.
            self.lines.append(
                (
                    f"{result_name} = {constraint}",
                    f"{result_name} = stablehlo.optimization_barrier {name} : {tensor(shape)}",
                )
            )
            name = result_name
        self.values.append((name, shape))
        return name

    def value(self, least: int = 0) -> tuple[str, Shape]:
        large_enough = [entry for entry in self.values if len(entry[1]) >= least]
        return self.pick(large_enough or self.values)

    def write(self, text: str) -> None:
        """Adds lines that are the same with shardings and without."""
        self.lines.append((text, text))

    def constant(self, text: str, shape: Shape = (), element: str = "f32") -> str:
        name = self.name()
        self.write(f"{name} = stablehlo.constant dense<{text}> : {tensor(shape, element)}")
        return name

    def scalar(self, value: float) -> str:
        return self.constant(f"{value:e}")

    def positions(self, count: int) -> tuple[list[int], str]:
        """`count` positions in one integer type, which is drawn, too; some out of every array, at an end of it."""
        element = self.pick(("i32", "i32", "i32", "i64", "i8", "ui8", "i16", "ui16", "ui32", "ui64"))
        bits, signed = int(element.lstrip("ui")), element.startswith("i")
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        drawn = [self.pick((least, most)) if self.below(12) == 0 else self.below(14) - 2 for _ in range(count)]
        return [max(value, least) for value in drawn], element

    def starts(self, count: int) -> tuple[str, str]:
        """`count` scalars that are positions, and their types."""
        values, element = self.positions(count)
        names = [self.constant(str(value), (), element) for value in values]
        return ", ".join(names), ", ".join([f"tensor<{element}>"] * count)

    def index(self, value: int) -> str:
        return self.constant(str(value), (), "i32")


def of_a_rank(write: Callable[[DrawnProgram, str, Shape], None]) -> Callable[[DrawnProgram], None]:
    """Decorator: an op of a value that has dimensions; nothing where there is none."""

    @wraps(write)
    def draw(p: DrawnProgram) -> None:
        name, shape = p.value(1)
        if shape:
            write(p, name, shape)

    return draw


def along_a_dimension(write: Callable[[DrawnProgram, str, Shape, int], None]) -> Callable[[DrawnProgram], None]:
    """Decorator: an op along one dimension of such a value."""

    @wraps(write)
    def draw(p: DrawnProgram, name: str, shape: Shape) -> None:
        write(p, name, shape, p.below(len(shape)))

    return of_a_rank(draw)


def _merge(axes: list[str]) -> list[str]:
    """Neighbouring parts of one axis as one, as Shardy demands."""
    merged: list[str] = []
    for axis in axes:
        if merged and axis.split(":")[0] == merged[-1].split(":")[0] and "(1)2" in merged[-1] and "(2)" in axis:
            merged[-1] = axis.split(":")[0]
        else:
            merged.append(axis)
    return merged


def tensor(shape: Shape, element: str = "f32") -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def integers(values) -> str:  # type: ignore[no-untyped-def]
    return f"array<i64: {', '.join(map(str, values))}>" if len(values) else "array<i64>"
