"""Random programs of all processes of a grid: random ops, in branches and loops too, transfers and streams."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

import spmd
from spmd.support.arrays import Array
from spmd.types import ELEMENT_TYPES
from tests.runtime.random_ops import ELEMENTS, RandomOps, Shape, type_text


class RandomProgram(RandomOps):
    """Draws a program."""

    def steps(self, count: int, deeper: bool) -> None:
        kinds = [self.arithmetic, self.movement, self.reduction, self.identity, self.collective, self.collective]
        kinds += [self.transfer, self.stream, self.product]
        if deeper:
            kinds += [self.branch, self.loop]
        for _ in range(count):
            self.data.draw(st.sampled_from(kinds))()

    def transfer(self) -> None:
        """A send, and its recv at once or in a branch of its own."""
        operand = self.value()
        if operand is None or self.grid.num_partitions > 1 or self.turns:
            return
        name, element, shape = operand
        self.channels += 1
        pairs = [
            [rank, target] for rank, target in zip(self.here, self.data.draw(st.permutations(self.here)), strict=True)
        ]
        pairs = pairs[: self.number(1, len(pairs))]
        ends = (
            f"channel_handle = #stablehlo.channel_handle<handle = {self.channels}, type = 1>, "
            f"source_target_pairs = dense<{pairs}> : tensor<{len(pairs)}x2xi64>"
        )
        type, token, sent, pair = type_text(element, shape), self.name(), self.name(), self.name()
        self.lines.append(f"{token} = stablehlo.create_token : !stablehlo.token")
        send = f'"stablehlo.send"({name}, {token}) {{{ends}}} : ({type}, !stablehlo.token) -> !stablehlo.token'
        receive = f'"stablehlo.recv"({sent}) {{{ends}}} : (!stablehlo.token) -> ({type}, !stablehlo.token)'
        if self.maybe():
            self.lines += [f"{sent} = {send}", f"{pair}:2 = {receive}"]
            self.values.append((f"{pair}#0", element, shape))
            return
        sources, targets = (
            [int(rank in column) for rank in range(self.grid.size)] for column in zip(*pairs, strict=True)
        )
        give, take = self.of_rank(sources, "i1"), self.of_rank(targets, "i1")
        self.lines += [
            f'{sent} = "stablehlo.if"({give}) ({{\n{sent}.1 = {send}\n'
            f"stablehlo.return {sent}.1 : !stablehlo.token\n}}, {{\n"
            f"stablehlo.return {token} : !stablehlo.token\n}}) : (tensor<i1>) -> !stablehlo.token",
            f'{pair} = "stablehlo.if"({take}) ({{\n{pair}.1:2 = {receive}\n'
            f"stablehlo.return {pair}.1#0 : {type}\n}}, {{\n"
            f"stablehlo.return {name} : {type}\n}}) : (tensor<i1>) -> {type}",
        ]
        self.values.append((pair, element, shape))

    def stream(self) -> None:
        """An entry of the infeed, and one of the outfeed."""
        if self.turns > 1:
            return
        shape: Shape = (self.number(1, 3),)
        token, read, wrote = self.name(), self.name(), self.name()
        type = type_text("f32", shape)
        self.lines += [
            f"{token} = stablehlo.create_token : !stablehlo.token",
            f'{read}:2 = "stablehlo.infeed"({token}) {{infeed_config = ""}} : (!stablehlo.token) '
            f"-> ({type}, !stablehlo.token)",
            f'{wrote} = "stablehlo.outfeed"({read}#0, {read}#1) {{outfeed_config = ""}} '
            f": ({type}, !stablehlo.token) -> !stablehlo.token",
        ]
        self.feed(shape)
        self.values.append((f"{read}#0", "f32", shape))

    def feed(self, shape: Shape) -> None:
        """Entries for those that come here."""
        for rank in self.here:
            self.fed[rank].append(np.full(shape, 0.25 * len(self.fed[rank]) + rank, np.float32))

    # --- control flow

    def inside(self, here: list[int], write: Callable[[], None]) -> list[str]:
        """The lines of a region that the processes `here` come to."""
        lines, values, before = self.lines, self.values, self.here
        self.lines, self.values, self.here = [], list(values), here
        write()
        written = self.lines
        self.lines, self.values, self.here = lines, values, before
        return written

    def returned(self, element: str, shape: Shape, otherwise: str) -> str:
        """A value of the type that a region returns: one of its own, if there is one."""
        fitting = [value for value in self.values if value[1:] == (element, shape)]
        return fitting[-1][0] if fitting else otherwise

    def branch(self) -> None:
        operand = self.value()
        if operand is None:
            return
        name, element, shape = operand
        type = type_text(element, shape)
        table = [1] * self.grid.size if self.maybe() else [self.number(0, 1) for _ in range(self.grid.size)]
        predicate = self.of_rank(table, "i1")
        regions = []
        for taken in (1, 0):
            here = [rank for rank in self.here if table[rank] == taken]
            ends: list[str] = []

            def write(ends: list[str] = ends, here: list[int] = here) -> None:
                if here:
                    self.steps(self.number(0, 3), False)
                else:
                    self.arithmetic()
                ends.append(self.returned(element, shape, name))

            lines = self.inside(here, write)
            regions.append("{\n" + "\n".join([*lines, f"stablehlo.return {ends[0]} : {type}"]) + "\n}")
        self.write(f'"stablehlo.if"({predicate}) ({", ".join(regions)}) : (tensor<i1>) -> {type}', element, shape)

    def loop(self) -> None:
        """As many turns as each process's table says; in a turn only processes of one number may meet."""
        operand = self.value()
        if operand is None or self.turns:
            return
        name, element, shape = operand
        type = type_text(element, shape)
        differs = self.maybe()
        count = self.number(0, 3)
        table = [self.number(0, 3) if differs else count for _ in range(self.grid.size)]
        alike = [rank for rank in self.here if table[rank] == table[self.here[0]]]
        limit, zero, one = self.of_rank(table), self.constant(0, "i32", ()), self.constant(1, "i32", ())
        index, carried, after, result, test = (self.name() for _ in range(5))
        ends: list[str] = []

        def write() -> None:
            self.values.append((carried, element, shape))
            self.turns = table[self.here[0]] if len(alike) == len(self.here) else 0
            kinds = [self.arithmetic, self.movement, self.reduction, self.identity]
            if len(alike) == len(self.here):
                kinds += [self.collective] * 3 + ([self.branch] if count else [])
            for _ in range(self.number(1, 4)):
                self.data.draw(st.sampled_from(kinds))()
            ends.append(self.returned(element, shape, carried))

        self.turns = 1
        lines = self.inside(self.here, write)
        self.turns = 0
        types = f"tensor<i32>, {type}"
        self.lines.append(
            f"{result}:2 = stablehlo.while({index} = {zero}, {carried} = {name}) : {types}\ncond {{\n"
            f"{test} = stablehlo.compare LT, {index}, {limit} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            f"stablehlo.return {test} : tensor<i1>\n}} do {{\n"
            + "\n".join([*lines, f"{after} = stablehlo.add {index}, {one} : tensor<i32>"])
            + f"\nstablehlo.return {after}, {ends[0]} : {types}\n}}"
        )
        self.values.append((f"{result}#1", element, shape))


def draw_program(data: st.DataObject) -> tuple[str, RandomProgram, list[list[Array]]]:
    """A program's text, what it is of, and each process's arguments."""
    grid = spmd.ProcessGrid(data.draw(st.integers(1, 5)), data.draw(st.sampled_from([1, 1, 2, 3])))
    program = RandomProgram(data, grid)
    types = [
        (program.one_of(ELEMENTS), (program.number(1, 4), program.number(1, 3))) for _ in range(program.number(1, 3))
    ]
    program.values = [(f"%x{place}", element, shape) for place, (element, shape) in enumerate(types)]
    program.steps(program.number(3, 9), True)
    results = program.values[-4:]
    taken = ", ".join(f"%x{place}: {type_text(*each)}" for place, each in enumerate(types))
    kinds = ", ".join(type_text(element, shape) for _, element, shape in results)
    text = (
        f"func.func @main({taken}) -> ({kinds}) {{\n"
        + "\n".join(program.lines)
        + f"\nreturn {', '.join(name for name, _, _ in results)} : {kinds}\n}}"
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtypes = [ELEMENT_TYPES[element].dtype for element, _ in types]
    shared = [data.draw(st.booleans()) for _ in types]

    def argument(dtype: np.dtype, shape: Shape) -> Array:
        return np.asarray(rng.normal(size=shape) * 3 if dtype.kind != "u" else rng.integers(0, 9, shape)).astype(dtype)

    once = [argument(dtype, shape) for dtype, (_, shape) in zip(dtypes, types, strict=True)]
    inputs = [
        [
            same if up else argument(dtype, shape)
            for same, up, dtype, (_, shape) in zip(once, shared, dtypes, types, strict=True)
        ]
        for _ in range(grid.size)
    ]
    return text, program, inputs
