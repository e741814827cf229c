"""Random small programs with random shardings, as text: what the property test draws.

A program is a chain of ops on a few values of small integers, so that results agree however they are summed. Every op
may be followed by a sharding constraint; arguments carry shardings. `whole` is the same program without any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

_SIZES = (1, 2, 3, 4, 5, 6, 8, 12)
_MESHES = (
    (("x", 4),),
    (("x", 2), ("y", 2)),
    (("x", 2), ("y", 3)),
    (("x", 2), ("y", 2), ("z", 2)),
    (("x", 8),),
    (("x", 4), ("y", 2)),
    (("x", 6),),
)

Shape = tuple[int, ...]


@dataclass
class Drawn:
    """The program with shardings, without, its arguments, and the number of devices."""

    sharded: str
    whole: str
    arguments: list[np.ndarray]
    devices: int


@dataclass
class _Program:
    random: np.random.Generator
    mesh: tuple[tuple[str, int], ...]
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
        """Dimension shardings with axes dealt out at random, parts of axes among them."""
        parts: list[str] = []
        for name, size in self.mesh:
            if size == 4 and self.random.random() < 0.2:
                parts += [f'"{name}":(1)2', f'"{name}":(2)2']
            elif size == 8 and self.random.random() < 0.2:
                parts += [f'"{name}":(1)2', f'"{name}":(2)4']
            else:
                parts.append(f'"{name}"')
        dimensions: list[list[str]] = [[] for _ in range(rank)]
        for index in self.random.permutation(len(parts)):
            place = self.below(rank + 1)
            if place < rank:
                dimensions[place].append(parts[index])
        texts = []
        for axes in dimensions:
            merged = _merge(axes)
            opened = ["?"] if self.random.random() < 0.3 else []
            texts.append("{" + ", ".join(merged + opened) + "}")
        return f"<@mesh, [{', '.join(texts)}]>"

    def emit(self, text: str, shape: Shape, element: str = "f32") -> str:
        """Adds an op whose right side is `text`; its result may get a constraint."""
        name = self.name()
        self.lines.append((f"{name} = {text}", f"{name} = {text}"))
        if element != "f32":
            return name
        if shape and self.random.random() < 0.4:
            made = self.name()
            constraint = f"sdy.sharding_constraint {name} {self.sharding(len(shape))} : {_tensor(shape)}"
            # The program without shardings has the value itself under the new name.
            self.lines.append(
                (f"{made} = {constraint}", f"{made} = stablehlo.optimization_barrier {name} : {_tensor(shape)}")
            )
            name = made
        self.values.append((name, shape))
        return name

    def value(self, least: int = 0) -> tuple[str, Shape]:
        found = [entry for entry in self.values if len(entry[1]) >= least]
        return self.pick(found or self.values)

    def scalar(self, value: float) -> str:
        name = self.name()
        line = f"{name} = stablehlo.constant dense<{value:e}> : tensor<f32>"
        self.lines.append((line, line))
        return name

    def index(self, value: int) -> str:
        name = self.name()
        line = f"{name} = stablehlo.constant dense<{value}> : tensor<i32>"
        self.lines.append((line, line))
        return name


def _merge(axes: list[str]) -> list[str]:
    """Neighbouring parts of one axis as one, as Shardy demands."""
    made: list[str] = []
    for axis in axes:
        if made and axis.split(":")[0] == made[-1].split(":")[0] and "(1)2" in made[-1] and "(2)" in axis:
            made[-1] = axis.split(":")[0]
        else:
            made.append(axis)
    return made


def _tensor(shape: Shape, element: str = "f32") -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def _integers(values) -> str:  # type: ignore[no-untyped-def]
    return f"array<i64: {', '.join(map(str, values))}>" if len(values) else "array<i64>"


# --- ops -------------------------------------------------------------------------------------------------------------


def _elementwise(p: _Program) -> None:
    name, shape = p.value()
    same = [entry for entry in p.values if entry[1] == shape]
    other = p.pick(same)[0]
    op = p.pick(("add", "subtract", "maximum", "minimum", "multiply"))
    if op == "multiply":
        other = p.emit(f"stablehlo.sign {other} : {_tensor(shape)}", shape)
    p.emit(f"stablehlo.{op} {name}, {other} : {_tensor(shape)}", shape)


def _broadcast(p: _Program) -> None:
    name, shape = p.value()
    if len(shape) > 2:
        return
    size, place = p.pick(_SIZES), p.below(len(shape) + 1)
    made = (*shape[:place], size, *shape[place:])
    kept = [index for index in range(len(made)) if index != place]
    p.emit(f"stablehlo.broadcast_in_dim {name}, dims = {kept} : ({_tensor(shape)}) -> {_tensor(made)}", made)


def _reduce(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    chosen = [index for index in range(len(shape)) if p.below(2)] or [0]
    op, start = p.pick((("add", 0.0), ("maximum", -1e30), ("minimum", 1e30), ("add", 1.0)))
    init = p.scalar(start)
    made = tuple(size for index, size in enumerate(shape) if index not in chosen)
    p.emit(
        f"stablehlo.reduce({name} init: {init}) applies stablehlo.{op} across dimensions = {chosen} : "
        f"({_tensor(shape)}, tensor<f32>) -> {_tensor(made)}",
        made,
    )


def _transpose(p: _Program) -> None:
    name, shape = p.value(2)
    order = [int(index) for index in p.random.permutation(len(shape))]
    made = tuple(shape[index] for index in order)
    p.emit(f"stablehlo.transpose {name}, dims = {order} : ({_tensor(shape)}) -> {_tensor(made)}", made)


def _reshape(p: _Program) -> None:
    name, shape = p.value(1)
    left = prod(shape)
    made: list[int] = []
    while left > 1 and len(made) < 3:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        made.append(p.pick(divisors))
        left //= made[-1]
    if left > 1 or not made:
        made.append(left)
    p.emit(f"stablehlo.reshape {name} : ({_tensor(shape)}) -> {_tensor(tuple(made))}", tuple(made))


def _slice(p: _Program) -> None:
    name, shape = p.value(1)
    starts = [p.below(size) for size in shape]
    limits = [start + 1 + p.below(size - start) for start, size in zip(starts, shape, strict=True)]
    strides = [1 + p.below(3) if p.below(3) == 0 else 1 for _ in shape]
    made = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, strides, strict=True))
    ranges = ", ".join(f"{a}:{b}:{s}" for a, b, s in zip(starts, limits, strides, strict=True))
    p.emit(f"stablehlo.slice {name} [{ranges}] : ({_tensor(shape)}) -> {_tensor(made)}", made)


def _pad(p: _Program) -> None:
    name, shape = p.value(1)
    low = [p.below(5) - 1 for _ in shape]
    high = [p.below(5) - 1 for _ in shape]
    inner = [p.below(3) if p.below(3) == 0 else 0 for _ in shape]
    made = tuple(s + a + b + max(s - 1, 0) * i for s, a, b, i in zip(shape, low, high, inner, strict=True))
    if min(made) < 1 or prod(made) > 800:
        return
    fill = p.scalar(2.0)
    p.emit(
        f"stablehlo.pad {name}, {fill}, low = {low}, high = {high}, interior = {inner} : "
        f"({_tensor(shape)}, tensor<f32>) -> {_tensor(made)}",
        made,
    )


def _concatenate(p: _Program) -> None:
    _, shape = p.value(1)
    if not shape:
        return
    place = p.below(len(shape))
    fits = [
        v
        for v in p.values
        if len(v[1]) == len(shape)
        and all(a == b for i, (a, b) in enumerate(zip(v[1], shape, strict=True)) if i != place)
    ]
    parts = [p.pick(fits) for _ in range(1 + p.below(3))]
    extent = sum(entry[1][place] for entry in parts)
    made = (*shape[:place], extent, *shape[place + 1 :])
    if prod(made) > 800:
        return
    types = ", ".join(_tensor(entry[1]) for entry in parts)
    names = ", ".join(entry[0] for entry in parts)
    p.emit(f"stablehlo.concatenate {names}, dim = {place} : ({types}) -> {_tensor(made)}", made)


def _roll(p: _Program) -> None:
    name, shape = p.value(1)
    places = [index for index, size in enumerate(shape) if size > 1]
    if not places:
        return
    place = p.pick(places)
    size = shape[place]
    shift = 1 + p.below(size - 1)

    def part(start: int, stop: int) -> tuple[str, Shape]:
        ranges = ", ".join(f"{start}:{stop}" if i == place else f"0:{s}" for i, s in enumerate(shape))
        made = (*shape[:place], stop - start, *shape[place + 1 :])
        return p.emit(f"stablehlo.slice {name} [{ranges}] : ({_tensor(shape)}) -> {_tensor(made)}", made), made

    (a, sa), (b, sb) = part(size - shift, size), part(0, size - shift)
    p.emit(f"stablehlo.concatenate {a}, {b}, dim = {place} : ({_tensor(sa)}, {_tensor(sb)}) -> {_tensor(shape)}", shape)


def _reverse(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    chosen = [index for index in range(len(shape)) if p.below(2)] or [0]
    p.emit(f"stablehlo.reverse {name}, dims = {chosen} : {_tensor(shape)}", shape)


def _dot(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    place = p.below(len(shape))
    fits = [(v, d) for v in p.values for d, size in enumerate(v[1]) if size == shape[place]]
    (other, other_shape), other_place = p.pick(fits)
    made = (
        *(s for i, s in enumerate(shape) if i != place),
        *(s for i, s in enumerate(other_shape) if i != other_place),
    )
    if len(made) > 4 or prod(made) > 800:
        return
    sign = p.emit(f"stablehlo.sign {name} : {_tensor(shape)}", shape)
    p.emit(
        f"stablehlo.dot_general {sign}, {other}, contracting_dims = [{place}] x [{other_place}] : "
        f"({_tensor(shape)}, {_tensor(other_shape)}) -> {_tensor(made)}",
        made,
    )


def _dynamic_slice(p: _Program) -> None:
    name, shape = p.value(1)
    sizes = tuple(1 + p.below(size) for size in shape)
    starts = [p.index(p.below(14) - 2) for _ in shape]
    types = ", ".join(["tensor<i32>"] * len(shape))
    if not shape:
        return
    p.emit(
        f"stablehlo.dynamic_slice {name}, {', '.join(starts)}, sizes = {list(sizes)} : "
        f"({_tensor(shape)}, {types}) -> {_tensor(sizes)}",
        sizes,
    )


def _dynamic_update_slice(p: _Program) -> None:
    name, shape = p.value(1)
    fits = [v for v in p.values if len(v[1]) == len(shape) and all(a <= b for a, b in zip(v[1], shape, strict=True))]
    update, extent = p.pick(fits)
    if not shape:
        return
    starts = [p.index(p.below(14) - 2) for _ in shape]
    types = ", ".join(["tensor<i32>"] * len(shape))
    p.emit(
        f"stablehlo.dynamic_update_slice {name}, {update}, {', '.join(starts)} : "
        f"({_tensor(shape)}, {_tensor(extent)}, {types}) -> {_tensor(shape)}",
        shape,
    )


def _indices(p: _Program, count: int, limit: int) -> str:
    name = p.name()
    values = ", ".join(str(p.below(limit + 2) - 1) for _ in range(count))
    line = f"{name} = stablehlo.constant dense<[{values}]> : {_tensor((count,), 'i32')}"
    p.lines.append((line, line))
    return name


def _gather(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    place, count = p.below(len(shape)), p.pick(_SIZES)
    indices = _indices(p, count, shape[place])
    rest = tuple(size for index, size in enumerate(shape) if index != place)
    made = (count, *rest)
    offsets = list(range(1, len(shape)))
    sizes = [1 if index == place else size for index, size in enumerate(shape)]
    p.emit(
        f'"stablehlo.gather"({name}, {indices}) <{{dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, '
        f"collapsed_slice_dims = [{place}], start_index_map = [{place}], index_vector_dim = 1>, "
        f"slice_sizes = {_integers(sizes)}}}> : ({_tensor(shape)}, {_tensor((count,), 'i32')}) -> {_tensor(made)}",
        made,
    )


def _scatter(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    place, count = p.below(len(shape)), p.pick(_SIZES)
    indices = _indices(p, count, shape[place])
    rest = tuple(size for index, size in enumerate(shape) if index != place)
    updates_shape = (count, *rest)
    updates = p.emit(
        f"stablehlo.broadcast_in_dim {p.scalar(3.0)}, dims = [] : (tensor<f32>) -> {_tensor(updates_shape)}",
        updates_shape,
    )
    windows = list(range(1, len(shape)))
    fold = p.pick(("add", "maximum", "minimum"))
    p.emit(
        f'"stablehlo.scatter"({name}, {indices}, {updates}) <{{scatter_dimension_numbers = #stablehlo.scatter<'
        f"update_window_dims = {windows}, inserted_window_dims = [{place}], scatter_dims_to_operand_dims = [{place}], "
        f"index_vector_dim = 1>}}> ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        f"%c = stablehlo.{fold} %a, %b : tensor<f32>\nstablehlo.return %c : tensor<f32>\n}}) : "
        f"({_tensor(shape)}, {_tensor((count,), 'i32')}, {_tensor(updates_shape)}) -> {_tensor(shape)}",
        shape,
    )


def _sort(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    place = p.below(len(shape))
    p.emit(
        f'"stablehlo.sort"({name}) <{{dimension = {place} : i64, is_stable = true}}> ({{\n'
        f"^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> "
        f"tensor<i1>\nstablehlo.return %c : tensor<i1>\n}}) : ({_tensor(shape)}) -> {_tensor(shape)}",
        shape,
    )


def _reduce_window(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    place = p.below(len(shape))
    size = shape[place]
    if p.below(2):
        extents, stride, base, step = size, 1, 1, 1
        padding = p.pick(((size - 1, 0), (0, size - 1)))
    else:
        extents, stride, base, step = 1 + p.below(3), 1 + p.below(2), 1 + p.below(2), 1 + p.below(2)
        padding = (p.below(3), p.below(3))
    reach = (extents - 1) * step + 1
    out = ((size - 1) * base + 1 + sum(padding) - reach) // stride + 1
    made = (*shape[:place], out, *shape[place + 1 :])
    if out < 1 or prod(made) > 800:
        return

    def row(value: int) -> str:
        return _integers([value if index == place else 1 for index in range(len(shape))])

    pads = ", ".join(f"[{padding[0]}, {padding[1]}]" if i == place else "[0, 0]" for i in range(len(shape)))
    fold, start = p.pick((("add", 0.0), ("maximum", -1e30)))
    p.emit(
        f'"stablehlo.reduce_window"({name}, {p.scalar(start)}) <{{window_dimensions = {row(extents)}, '
        f"window_strides = {row(stride)}, base_dilations = {row(base)}, window_dilations = {row(step)}, "
        f"padding = dense<[{pads}]> : tensor<{len(shape)}x2xi64>}}> ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        f"%c = stablehlo.{fold} %a, %b : tensor<f32>\nstablehlo.return %c : tensor<f32>\n}}) : "
        f"({_tensor(shape)}, tensor<f32>) -> {_tensor(made)}",
        made,
    )


def _iota(p: _Program) -> None:
    name, shape = p.value(1)
    if not shape:
        return
    made = p.emit(f"stablehlo.iota dim = {p.below(len(shape))} : {_tensor(shape)}", shape)
    p.emit(f"stablehlo.subtract {name}, {made} : {_tensor(shape)}", shape)


def _select(p: _Program) -> None:
    name, shape = p.value()
    other = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    third = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    flag = p.emit(
        f"stablehlo.compare LT, {name}, {other} : ({_tensor(shape)}, {_tensor(shape)}) -> {_tensor(shape, 'i1')}",
        shape,
        "i1",
    )
    p.emit(f"stablehlo.select {flag}, {third}, {name} : {_tensor(shape, 'i1')}, {_tensor(shape)}", shape)


def _while(p: _Program) -> None:
    name, shape = p.value()
    other = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    zero, made = p.index(0), p.name()
    body = (
        f"{made}:2 = stablehlo.while(%i = {zero}, %s = {name}) : tensor<i32>, {_tensor(shape)}\ncond {{\n"
        f"%n = stablehlo.constant dense<3> : tensor<i32>\n"
        f"%t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        f"stablehlo.return %t : tensor<i1>\n}} do {{\n%one = stablehlo.constant dense<1> : tensor<i32>\n"
        f"%j = stablehlo.add %i, %one : tensor<i32>\n%u = stablehlo.maximum %s, {other} : {_tensor(shape)}\n"
        f"%w = stablehlo.subtract %u, {other} : {_tensor(shape)}\n"
        f"stablehlo.return %j, %w : tensor<i32>, {_tensor(shape)}\n}}"
    )
    p.lines.append((body, body))
    p.values.append((f"{made}#1", shape))


def _case(p: _Program) -> None:
    name, shape = p.value()
    other = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    index, made = p.index(p.below(2)), p.name()
    text = (
        f'{made} = "stablehlo.case"({index}) ({{\n%a = stablehlo.add {name}, {other} : {_tensor(shape)}\n'
        f"stablehlo.return %a : {_tensor(shape)}\n}}, {{\nstablehlo.return {other} : {_tensor(shape)}\n}}) : "
        f"(tensor<i32>) -> {_tensor(shape)}"
    )
    p.lines.append((text, text))
    p.values.append((made, shape))


def _convolution(p: _Program) -> None:
    name, shape = p.value(1)
    if len(shape) != 3:
        return
    batch, size, features = shape
    extent, out_features, stride, base, step = (
        1 + p.below(3),
        p.pick((1, 2, 4)),
        1 + p.below(2),
        1 + p.below(2),
        1 + p.below(2),
    )
    low, high = p.below(3), p.below(3)
    out = ((size - 1) * base + 1 + low + high - ((extent - 1) * step + 1)) // stride + 1
    if out < 1:
        return
    kernel_shape = (extent, features, out_features)
    kernel = p.emit(
        f"stablehlo.broadcast_in_dim {p.scalar(1.0)}, dims = [] : (tensor<f32>) -> {_tensor(kernel_shape)}",
        kernel_shape,
    )
    sign = p.emit(f"stablehlo.sign {name} : {_tensor(shape)}", shape)
    made = (batch, out, out_features)
    p.emit(
        f"stablehlo.convolution({sign}, {kernel}) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{stride = "
        f"[{stride}], pad = [[{low}, {high}]], lhs_dilate = [{base}], rhs_dilate = [{step}]}} {{batch_group_count = 1 "
        f": i64, feature_group_count = 1 : i64}} : ({_tensor(shape)}, {_tensor(kernel_shape)}) -> {_tensor(made)}",
        made,
    )


_OPS = (
    _elementwise, _elementwise, _broadcast, _reduce, _transpose, _reshape, _slice, _pad, _concatenate, _roll, _reverse,
    _dot, _dot, _dynamic_slice, _dynamic_update_slice, _gather, _scatter, _sort, _reduce_window, _iota, _select,
    _while, _case, _convolution,
)  # fmt: skip


def draw(seed: int) -> Drawn:
    """The program of `seed`."""
    random = np.random.default_rng(seed)
    p = _Program(random, _MESHES[int(random.integers(len(_MESHES)))])
    arrays = []
    header: list[tuple[str, str]] = []
    for index in range(2 + p.below(2)):
        shape = tuple(p.pick(_SIZES) for _ in range(1 + p.below(3)))
        arrays.append(random.integers(-3, 4, shape).astype(np.float32))
        name = f"%arg{index}"
        sharding = f" {{sdy.sharding = #sdy.sharding{p.sharding(len(shape))}}}" if p.below(3) else ""
        header.append((f"{name}: {_tensor(shape)}{sharding}", f"{name}: {_tensor(shape)}"))
        p.values.append((name, shape))
    for _ in range(2 + p.below(5)):
        p.pick(_OPS)(p)
    results = p.values[-2:]
    names = ", ".join(entry[0] for entry in results)
    types = ", ".join(_tensor(entry[1]) for entry in results)
    asked = [
        f"{_tensor(shape)}" + (f" {{sdy.sharding = #sdy.sharding{p.sharding(len(shape))}}}" if p.below(2) else "")
        for _, shape in results
    ]
    mesh = ", ".join(f'"{name}"={size}' for name, size in p.mesh)

    def text(side: int) -> str:
        lines = [
            f"func.func @main({', '.join(entry[side] for entry in header)}) -> ({(', '.join(asked), types)[side]}) {{"
        ]
        lines += [line[side] for line in p.lines]
        return "\n".join([*lines, f"return {names} : {types}", "}"])

    return Drawn(f"sdy.mesh @mesh = <[{mesh}]>\n{text(0)}", text(1), arrays, prod(size for _, size in p.mesh))
