"""Random ops of the processes of a grid: arithmetic, movement, reductions, products and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

import spmd
from spmd.support.arrays import Array

Shape = tuple[int, ...]
#: A value of the program: its name, element type and shape.
Value = tuple[str, str, Shape]

ELEMENTS = ("f32", "i32", "bf16", "f16", "ui8", "f64")
UNARY = ("abs", "negate", "sign", "tanh", "sine")
BINARY = ("add", "multiply", "subtract", "maximum", "minimum")


def type_text(element: str, shape: Shape) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def table_text(rows: Sequence[Sequence[int]]) -> str:
    longest = max(map(len, rows))
    padded = [[*row, *[-1] * (longest - len(row))] for row in rows]
    return f"dense<{padded}> : tensor<{len(rows)}x{longest}xi64>"


@dataclass
class RandomOps:
    """Draws ops. `here` are the processes that come to what is being written."""

    data: st.DataObject
    grid: spmd.ProcessGrid
    lines: list[str] = field(default_factory=list)
    names: int = 0
    channels: int = 0
    turns: int = 0
    here: list[int] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    #: Infeed entries of each process.
    fed: list[list[Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.here = list(range(self.grid.size))
        self.fed = [[] for _ in self.here]

    # --- drawing

    def one_of(self, choices: Sequence[str]) -> str:
        return self.data.draw(st.sampled_from(list(choices)))

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def maybe(self) -> bool:
        return self.data.draw(st.booleans())

    def value(self, elements: Sequence[str] = ELEMENTS, ranks: Sequence[int] = (0, 1, 2, 3)) -> Value | None:
        fitting = [value for value in self.values if value[1] in elements and len(value[2]) in ranks]
        return self.data.draw(st.sampled_from(fitting)) if fitting else None

    # --- writing

    def name(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def write(self, text: str, element: str, shape: Shape) -> Value:
        """A line that gives one value."""
        written = self.name(), element, shape
        self.lines.append(f"{written[0]} = {text}")
        self.values.append(written)
        return written

    def constant(self, array: object, element: str, shape: Shape) -> str:
        name = self.name()
        self.lines.append(f"{name} = stablehlo.constant dense<{array}> : {type_text(element, shape)}")
        return name

    def of_rank(self, table: Sequence[int], element: str = "i32") -> str:
        """The entry of a table that belongs to this process: a scalar."""
        replica, partition, count, wide, rank, at = (self.name() for _ in range(6))
        size = len(table)
        self.lines += [
            f"{replica} = stablehlo.replica_id : tensor<ui32>",
            f"{partition} = stablehlo.partition_id : tensor<ui32>",
            f"{count} = stablehlo.constant dense<{self.grid.num_partitions}> : tensor<ui32>",
            f"{wide} = stablehlo.multiply {replica}, {count} : tensor<ui32>",
            f"{rank} = stablehlo.add {wide}, {partition} : tensor<ui32>",
        ]
        entries = self.constant(list(table), "i32", (size,))
        one, scalar = self.name(), self.name()
        self.lines += [
            f"{one} = stablehlo.dynamic_slice {entries}, {rank}, sizes = [1] : (tensor<{size}xi32>, tensor<ui32>) "
            "-> tensor<1xi32>",
            f"{scalar} = stablehlo.reshape {one} : (tensor<1xi32>) -> tensor<i32>",
            f"{at} = stablehlo.convert {scalar} : (tensor<i32>) -> tensor<{element}>",
        ]
        return at

    # --- what one process computes

    def arithmetic(self) -> None:
        left = self.value()
        if left is None:
            return
        name, element, shape = left
        if self.maybe() and "i" not in element[:2]:
            self.write(f"stablehlo.{self.one_of(UNARY)} {name} : {type_text(element, shape)}", element, shape)
            return
        others = [value for value in self.values if value[1:] == left[1:]]
        right = self.data.draw(st.sampled_from(others))
        self.write(f"stablehlo.{self.one_of(BINARY)} {name}, {right[0]} : {type_text(element, shape)}", element, shape)

    def movement(self) -> None:
        operand = self.value(ranks=(1, 2))
        if operand is None:
            return
        name, element, shape = operand
        before = type_text(element, shape)
        kind = self.one_of(["reverse", "concatenate", "pad", "transpose", "slice", "dynamic_slice", "convert", "sort"])
        if kind == "reverse":
            self.write(f"stablehlo.reverse {name}, dims = [0] : {before}", element, shape)
        elif kind == "concatenate" and shape[0] < 6:
            after = (2 * shape[0], *shape[1:])
            types = f"({before}, {before}) -> {type_text(element, after)}"
            self.write(f"stablehlo.concatenate {name}, {name}, dim = 0 : {types}", element, after)
        elif kind == "transpose" and len(shape) == 2:
            after = shape[::-1]
            self.write(
                f"stablehlo.transpose {name}, dims = [1, 0] : ({before}) -> {type_text(element, after)}", element, after
            )
        elif kind == "pad" and shape[0] < 6:
            fill = self.constant(0, element, ()) if "i" in element[:2] else self.constant("0.5", element, ())
            after = (shape[0] + 1, *shape[1:])
            edges = [str([number] + [0] * (len(shape) - 1)) for number in (1, 0, 0)]
            self.write(
                f"stablehlo.pad {name}, {fill}, low = {edges[0]}, high = {edges[1]}, interior = {edges[2]} : "
                f"({before}, tensor<{element}>) -> {type_text(element, after)}",
                element,
                after,
            )
        elif kind == "dynamic_slice" and shape[0] > 1:
            start = self.of_rank([self.number(-1, 4) for _ in range(self.grid.size)])
            zero = [self.constant(0, "i32", ()) for _ in shape[1:]]
            after = (shape[0] - 1, *shape[1:])
            kinds = ", ".join([before, *["tensor<i32>"] * len(shape)])
            self.write(
                f"stablehlo.dynamic_slice {', '.join([name, start, *zero])}, sizes = {list(after)} : ({kinds}) -> "
                f"{type_text(element, after)}",
                element,
                after,
            )
        elif kind == "convert" and element in ("f32", "bf16", "f16", "f64"):
            other = self.one_of(["f32", "bf16", "f16", "f64"])
            self.write(f"stablehlo.convert {name} : ({before}) -> {type_text(other, shape)}", other, shape)
        elif kind == "sort":
            order = "TOTALORDER, " if "i" not in element[:2] else ""
            scalar = f"tensor<{element}>"
            compared = '"stablehlo.compare"(%a, %b) {comparison_direction = #stablehlo<comparison_direction LT>'
            compared += ", compare_type = #stablehlo<comparison_type TOTALORDER>" if order else ""
            self.write(
                f'"stablehlo.sort"({name}) ({{\n^bb0(%a: {scalar}, %b: {scalar}):\n'
                f"%c = {compared}}} : ({scalar}, {scalar}) -> tensor<i1>\n"
                "stablehlo.return %c : tensor<i1>\n}) {dimension = 0 : i64, is_stable = true} "
                f": ({before}) -> {before}",
                element,
                shape,
            )

    def reduction(self) -> None:
        operand = self.value(ranks=(1, 2))
        if operand is None:
            return
        name, element, shape = operand
        dimension = self.number(0, len(shape) - 1)
        after = shape[:dimension] + shape[dimension + 1 :]
        init = self.constant(0, element, ()) if "i" in element[:2] else self.constant("0.0", element, ())
        self.write(
            f"stablehlo.reduce({name} init: {init}) applies stablehlo.add across dimensions = [{dimension}] : "
            f"({type_text(element, shape)}, tensor<{element}>) -> {type_text(element, after)}",
            element,
            after,
        )

    def identity(self) -> None:
        element = self.one_of(ELEMENTS)
        shape: Shape = (self.number(1, 3), self.number(1, 3))
        scalar = self.of_rank([self.number(0, 5) for _ in range(self.grid.size)], element)
        self.write(
            f"stablehlo.broadcast_in_dim {scalar}, dims = [] : (tensor<{element}>) -> {type_text(element, shape)}",
            element,
            shape,
        )

    def product(self) -> None:
        operand = self.value(("f32", "f64", "bf16"), (2,))
        if operand is None:
            return
        name, element, shape = operand
        others = [v for v in self.values if v[1] == element and len(v[2]) == 2 and v[2][0] == shape[1]]
        if not others:
            return
        right = self.data.draw(st.sampled_from(others))
        after = (shape[0], right[2][1])
        types = f"({type_text(element, shape)}, {type_text(element, right[2])}) -> {type_text(element, after)}"
        self.write(f"stablehlo.dot_general {name}, {right[0]}, contracting_dims = [1] x [0] : {types}", element, after)

    # --- processes together

    def groups(self) -> list[list[int]]:
        """Ranks in groups, none of which holds some that are here beside others that are not."""
        rows: list[list[int]] = []
        everyone = range(self.grid.size)
        for side in (self.here, [rank for rank in everyone if rank not in self.here]):
            order = list(self.data.draw(st.permutations(side))) if self.maybe() else list(side)
            while order:
                count = self.number(1, len(order))
                rows.append(order[:count])
                order = order[count:]
        return rows

    def equal_groups(self) -> list[list[int]]:
        """The same, all of one length."""
        rows = self.groups()
        lengths = {len(row) for row in rows}
        return rows if len(lengths) == 1 else [[rank] for rank in range(self.grid.size)]

    def collective(self) -> None:
        operand = self.value(ranks=(1, 2))
        if operand is None:
            return
        name, element, shape = operand
        kinds = ["all_reduce", "all_reduce", "all_gather", "reduce_scatter", "async"]
        kind = self.one_of([*kinds, "collective_permute", "collective_broadcast", "dynamic_broadcast"])
        flat = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids"
        before = type_text(element, shape)
        operator = self.one_of(["add", "multiply", "maximum", "minimum"])
        scalar = f"tensor<{element}>"
        body = (
            f"({{\n^bb0(%a: {scalar}, %b: {scalar}):\n%c = stablehlo.{operator} %a, %b : {scalar}\n"
            f"stablehlo.return %c : {scalar}\n}})"
        )
        if kind in ("all_reduce", "async"):
            op = f'"stablehlo.all_reduce"(X) {body} {{replica_groups = {table_text(self.groups())}, {flat}}}'
            if kind == "all_reduce":
                self.write(f"{op.replace('(X)', f'({name})')} : ({before}) -> {before}", element, shape)
                return
            future, result = self.name(), f"!stablehlo.future<{before}>"
            inner = op.replace("(X)", "(%inner)")
            self.lines.append(
                f'{future} = "stablehlo.async_start"({name}) ({{\n^bb0(%inner: {before}):\n'
                f"%started = {inner} : ({before}) -> {before}\nstablehlo.return %started : {before}\n}}) "
                f": ({before}) -> {result}"
            )
            self.arithmetic()
            self.write(f'"stablehlo.async_done"({future}) : ({result}) -> {before}', element, shape)
        elif kind == "all_gather":
            rows = self.equal_groups()
            after = (shape[0] * len(rows[0]), *shape[1:])
            if after[0] < 12:
                self.write(
                    f'"stablehlo.all_gather"({name}) {{all_gather_dim = 0 : i64, replica_groups = {table_text(rows)}, '
                    f"{flat}}} : ({before}) -> {type_text(element, after)}",
                    element,
                    after,
                )
        elif kind == "reduce_scatter":
            rows = self.equal_groups()
            if shape[0] % len(rows[0]) == 0:
                after = (shape[0] // len(rows[0]), *shape[1:])
                self.write(
                    f'"stablehlo.reduce_scatter"({name}) {body} {{scatter_dimension = 0 : i64, replica_groups = '
                    f"{table_text(rows)}, {flat}}} : ({before}) -> {type_text(element, after)}",
                    element,
                    after,
                )
        elif self.grid.num_partitions == 1:
            self.moved(kind, name, element, shape)

    def moved(self, kind: str, name: str, element: str, shape: Shape) -> None:
        """What goes between replicas, where each is one process."""
        before = type_text(element, shape)
        if kind == "collective_permute":
            targets = self.data.draw(st.permutations(self.here))
            pairs = [list(pair) for pair in zip(self.here, targets, strict=True)][: self.number(0, len(self.here))]
            listed = f"dense<{pairs}>" if pairs else "dense<>"
            self.write(
                f'"stablehlo.collective_permute"({name}) {{source_target_pairs = {listed} : '
                f"tensor<{len(pairs)}x2xi64>}} : ({before}) -> {before}",
                element,
                shape,
            )
            return
        rows = self.equal_groups()
        if kind == "collective_broadcast":
            rows = rows[: self.number(1, len(rows))] if all(rank in self.here for row in rows for rank in row) else rows
            self.write(
                f'"stablehlo.collective_broadcast"({name}) {{replica_groups = {table_text(rows)}}} '
                f": ({before}) -> {before}",
                element,
                shape,
            )
            return
        table = [0] * self.grid.size
        for row in rows:
            root = self.number(0, len(row) - 1)
            for rank in row:
                table[rank] = root
        root_name, one = self.of_rank(table), self.name()
        self.lines.append(f"{one} = stablehlo.reshape {root_name} : (tensor<i32>) -> tensor<1xi32>")
        self.write(
            f'"stablehlo.collective_broadcast"({name}, {one}) {{replica_groups = {table_text(rows)}, '
            f"has_dynamic_root}} : ({before}, tensor<1xi32>) -> {before}",
            element,
            shape,
        )
