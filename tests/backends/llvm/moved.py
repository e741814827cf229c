"""Random programs that move elements of every type: broadcasts, transposes, reverses, short rows and pairs of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

from spmd.types import ELEMENT_TYPES, ElementType

#: Sizes of dimensions: short ones most of all, those around a vector's lanes, and enough for loops.
SIZES = (1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8, 9, 15, 16, 17, 20, 33, 64, 70)
MOST = 30_000
#: Element types that programs are drawn in.
ELEMENTS = [element for name, element in ELEMENT_TYPES.items() if name not in ("i1", "tf32", "index")]


#: What moves elements, and what computes of each.
MOVES = ("broadcast", "pairs", "pairs", "transpose", "reverse", "cut", "join", "widen", "combine", "combine", "choose",
         "reshape", "row")  # fmt: skip


class Moved:
    """A program in text that grows op by op; what is drawn next takes any value that is there.

    `rng` draws of `kinds`; the arguments have the element type `element`.
    """

    def __init__(
        self,
        rng: random.Random,
        element: ElementType,
        kinds: Sequence[str] = (*MOVES, "rows", "convert", "count", "product"),
    ) -> None:
        self.rng, self.kinds = rng, kinds
        self.lines: list[str] = []
        self.arguments = [(self._shape(), str(element)) for _ in range(rng.randint(1, 2))]
        self.values = [(f"%a{number}", *argument) for number, argument in enumerate(self.arguments)]

    def grow(self, steps: int) -> None:
        """Draw `steps` more ops; those that would be too large, or are none for the value drawn, are left out."""
        for _ in range(steps):
            value = self.rng.choice(self.values[-4:])
            getattr(self, "_" + self.rng.choice(self.kinds))(*value)

    def text(self) -> str:
        """Return the program, which gives its last values."""
        results = self.values[len(self.arguments) :][-3:] or self.values[:1]
        arguments = ", ".join(f"%a{n}: {_type(*argument)}" for n, argument in enumerate(self.arguments))
        names = ", ".join(name for name, *_ in results)
        types = ", ".join(_type(*type) for _, *type in results)
        body = "\n".join(self.lines)
        return f"func.func @main({arguments}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}"

    def _shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice(SIZES) for _ in range(self.rng.randint(1, 3)))

    def _add(self, text: str, shape: tuple[int, ...], element: str) -> str | None:
        """Add an op, whose text lacks the result's type; return the result's name, None where that is too large."""
        if prod(shape) > MOST:
            return None
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = stablehlo.{text}{_type(shape, element)}")
        self.values.append((name, shape, element))
        return name

    def _same(self, shape: tuple[int, ...], element: str) -> str:
        return self.rng.choice([name for name, *type in self.values if type == [shape, element]])

    # --- what is drawn ---

    def _broadcast(self, name: str, shape: tuple[int, ...], element: str) -> None:
        """More dimensions, anywhere; those of size 1 may be stretched."""
        rank = len(shape) + self.rng.randint(0, 2)
        dims = self.rng.sample(range(rank), len(shape))
        if self.rng.random() < 0.7:  # others are transposed
            dims.sort()
        into = [self.rng.choice(SIZES[:10]) for _ in range(rank)]
        for dim, size in zip(dims, shape, strict=True):
            into[dim] = size if size != 1 else self.rng.choice(SIZES[:10])
        self._add(f"broadcast_in_dim {name}, dims = {dims} : ({_type(shape, element)}) -> ", tuple(into), element)

    def _pairs(self, name: str, shape: tuple[int, ...], element: str) -> None:
        """Something of all pairs of a row, of one of which there may be more."""
        if not shape:
            return
        *outer, last = shape
        rank, into = len(outer), (*outer, last, last)
        if prod(into) > MOST:
            return
        parts = []
        for dims in ([*range(rank), rank], [*range(rank), rank + 1]):
            text = f"broadcast_in_dim {name}, dims = {dims} : ({_type(shape, element)}) -> "
            parts.append(self._add(text, into, element))
        self.rng.shuffle(parts)
        self._add(f"{self._binary(element)} {parts[0]}, {parts[1]} : ", into, element)

    def _transpose(self, name: str, shape: tuple[int, ...], element: str) -> None:
        order = self.rng.sample(range(len(shape)), len(shape))
        text = f"transpose {name}, dims = {order} : ({_type(shape, element)}) -> "
        self._add(text, tuple(shape[dim] for dim in order), element)

    def _reverse(self, name: str, shape: tuple[int, ...], element: str) -> None:
        dims = sorted(self.rng.sample(range(len(shape)), self.rng.randint(0, len(shape))))
        self._add(f"reverse {name}, dims = {dims} : ", shape, element)

    def _cut(self, name: str, shape: tuple[int, ...], element: str) -> None:
        starts = [self.rng.randint(0, max(size - 1, 0)) for size in shape]
        limits = [self.rng.randint(start, size) for start, size in zip(starts, shape, strict=True)]
        steps = [self.rng.choice((1, 1, 2, 3)) for _ in shape]
        into = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, steps, strict=True))
        ranges = ", ".join(f"{a}:{b}:{s}" for a, b, s in zip(starts, limits, steps, strict=True))
        self._add(f"slice {name} [{ranges}] : ({_type(shape, element)}) -> ", into, element)

    def _join(self, name: str, shape: tuple[int, ...], element: str) -> None:
        if not shape:
            return
        axis = self.rng.randrange(len(shape))
        parts = [name, *(self._same(shape, element) for _ in range(self.rng.randint(1, 2)))]
        into = tuple(size * (len(parts) if dim == axis else 1) for dim, size in enumerate(shape))
        types = ", ".join([_type(shape, element)] * len(parts))
        self._add(f"concatenate {', '.join(parts)}, dim = {axis} : ({types}) -> ", into, element)

    def _widen(self, name: str, shape: tuple[int, ...], element: str) -> None:
        low, high = ([self.rng.choice((0, 0, 1, -1, 3)) for _ in shape] for _ in range(2))
        inner = [self.rng.choice((0, 0, 1)) for _ in shape]
        into = tuple(a + b + n + max(n - 1, 0) * c for n, a, b, c in zip(shape, low, high, inner, strict=True))
        if min(into, default=0) < 0:
            return
        zero = self._add(f"constant dense<{_zero(element)}> : ", (), element)
        self.values.pop()
        how = f"low = {low}, high = {high}, interior = {inner}"
        self._add(f"pad {name}, {zero}, {how} : ({_type(shape, element)}, {_type((), element)}) -> ", into, element)

    def _rows(self, name: str, shape: tuple[int, ...], element: str) -> None:
        """A fold of some dimensions."""
        axes = sorted(self.rng.sample(range(len(shape)), self.rng.randint(0, len(shape))))
        zero = self._add(f"constant dense<{_zero(element)}> : ", (), element)
        self.values.pop()
        types = f"({_type(shape, element)}, {_type((), element)}) -> "
        op = "add" if element != "i1" else "or"
        text = f"reduce({name} init: {zero}) applies stablehlo.{op} across dimensions = {axes} : {types}"
        self._add(text, tuple(size for dim, size in enumerate(shape) if dim not in axes), element)

    def _binary(self, element: str) -> str:
        if element == "i1":
            return self.rng.choice(("and", "or", "xor"))
        return self.rng.choice(("add", "subtract", "multiply", *(() if "complex" in element else ("maximum",))))

    def _combine(self, name: str, shape: tuple[int, ...], element: str) -> None:
        other = self._same(shape, element)
        self._add(f"{self._binary(element)} {name}, {other} : ", shape, element)

    def _choose(self, name: str, shape: tuple[int, ...], element: str) -> None:
        """One of two values, by a comparison of a third."""
        other, third = (self._same(shape, element) for _ in range(2))
        type = _type(shape, element)
        holds = self._add(f"compare NE, {name}, {third} : ({type}, {type}) -> ", shape, "i1")
        self._add(f"select {holds}, {name}, {other} : {_type(shape, 'i1')}, ", shape, element)

    def _convert(self, name: str, shape: tuple[int, ...], element: str) -> None:
        other = str(self.rng.choice(ELEMENTS))
        self._add(f"convert {name} : ({_type(shape, element)}) -> ", shape, other)

    def _count(self, name: str, shape: tuple[int, ...], element: str) -> None:
        if not shape or element == "i1":
            return
        count = self._add(f"iota dim = {self.rng.randrange(len(shape))} : ", shape, element)
        self._add(f"add {name}, {count} : ", shape, element)

    def _reshape(self, name: str, shape: tuple[int, ...], element: str) -> None:
        size = prod(shape)
        rows = self.rng.choice([each for each in (1, 2, 3, 4, 5, 8, size or 1) if size % each == 0])
        into = self.rng.choice([(size,), (rows, size // rows), (size // rows, rows)])
        self._add(f"reshape {name} : ({_type(shape, element)}) -> ", into, element)

    def _product(self, name: str, shape: tuple[int, ...], element: str) -> None:
        """The sums of products of all pairs of rows."""
        if not shape or element == "i1":
            return
        rank, type = len(shape), _type(shape, element)
        batches = list(range(self.rng.randint(0, rank - 1)))
        kept = [size for dim, size in enumerate(shape[:-1]) if dim not in batches]
        into = (*shape[: len(batches)], *kept, *kept)
        how = f"batching_dims = {batches} x {batches}, contracting_dims = [{rank - 1}] x [{rank - 1}]"
        self._add(f"dot_general {name}, {self._same(shape, element)}, {how} : ({type}, {type}) -> ", into, element)

    def _row(self, name: str, shape: tuple[int, ...], element: str) -> None:
        """A part whose place is computed while running."""
        if not shape or 0 in shape:
            return
        places = []
        for _ in shape:
            number = self._add(f"constant dense<{self.rng.choice((-1, 0, 1, 40))}> : ", (), "i32")
            self.values.pop()
            places.append(number)
        into = tuple(self.rng.choice((1, size)) for size in shape)
        types = ", ".join([_type(shape, element), *(["tensor<i32>"] * len(shape))])
        text = f"dynamic_slice {name}, {', '.join(map(str, places))}, sizes = {list(into)} : ({types}) -> "
        self._add(text, into, element)


def _type(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def _zero(element: str) -> str:
    if element == "i1":
        return "false"
    if element.startswith("complex"):
        return "(0.0, 0.0)"
    if element == "f8E8M0FNU":
        return "1.0"
    return "0" if element.startswith(("i", "ui")) else "0.0"


def moved_program(rng: random.Random, element: ElementType, most: int = 12) -> str:
    """Return a random program of up to `most` steps on arrays of `element`, drawn by `rng`."""
    program = Moved(rng, element)
    program.grow(rng.randint(1, most))
    return program.text()
