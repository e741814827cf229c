"""Random ops that place elements, and random control flow."""

from __future__ import annotations

from math import prod

from tests.partitioner.drawing import SIZES, DrawnProgram, Shape, along_a_dimension, of_a_rank, tensor


def elementwise(p: DrawnProgram) -> None:
    name, shape = p.value()
    same = [entry for entry in p.values if entry[1] == shape]
    other = p.pick(same)[0]
    op = p.pick(("add", "subtract", "maximum", "minimum", "multiply"))
    if op == "multiply":
        other = p.emit(f"stablehlo.sign {other} : {tensor(shape)}", shape)
    p.emit(f"stablehlo.{op} {name}, {other} : {tensor(shape)}", shape)


def broadcast(p: DrawnProgram) -> None:
    name, shape = p.value()
    if len(shape) > 2:
        return
    size, place = p.pick(SIZES), p.below(len(shape) + 1)
    result_shape = (*shape[:place], size, *shape[place:])
    kept = [index for index in range(len(result_shape)) if index != place]
    p.emit(
        f"stablehlo.broadcast_in_dim {name}, dims = {kept} : ({tensor(shape)}) -> {tensor(result_shape)}", result_shape
    )


def transpose(p: DrawnProgram) -> None:
    name, shape = p.value(2)
    order = [int(index) for index in p.random.permutation(len(shape))]
    result_shape = tuple(shape[index] for index in order)
    p.emit(f"stablehlo.transpose {name}, dims = {order} : ({tensor(shape)}) -> {tensor(result_shape)}", result_shape)


def reshape(p: DrawnProgram) -> None:
    name, shape = p.value(1)
    left = prod(shape)
    result_shape: list[int] = []
    while left > 1 and len(result_shape) < 3:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        result_shape.append(p.pick(divisors))
        left //= result_shape[-1]
    if left > 1 or not result_shape:
        result_shape.append(left)
    p.emit(f"stablehlo.reshape {name} : ({tensor(shape)}) -> {tensor(tuple(result_shape))}", tuple(result_shape))


def slice(p: DrawnProgram) -> None:
    name, shape = p.value(1)
    starts = [p.below(size) for size in shape]
    limits = [start + 1 + p.below(size - start) for start, size in zip(starts, shape, strict=True)]
    strides = [1 + p.below(3) if p.below(3) == 0 else 1 for _ in shape]
    result_shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, strides, strict=True))
    ranges = ", ".join(f"{a}:{b}:{s}" for a, b, s in zip(starts, limits, strides, strict=True))
    p.emit(f"stablehlo.slice {name} [{ranges}] : ({tensor(shape)}) -> {tensor(result_shape)}", result_shape)


def pad(p: DrawnProgram) -> None:
    name, shape = p.value(1)
    low = [p.below(5) - 1 for _ in shape]
    high = [p.below(5) - 1 for _ in shape]
    inner = [p.below(3) if p.below(3) == 0 else 0 for _ in shape]
    result_shape = tuple(s + a + b + max(s - 1, 0) * i for s, a, b, i in zip(shape, low, high, inner, strict=True))
    if min(result_shape) < 1 or prod(result_shape) > 800:
        return
    fill = p.scalar(2.0)
    p.emit(
        f"stablehlo.pad {name}, {fill}, low = {low}, high = {high}, interior = {inner} : "
        f"({tensor(shape)}, tensor<f32>) -> {tensor(result_shape)}",
        result_shape,
    )


@along_a_dimension
def concatenate(p: DrawnProgram, _: str, shape: Shape, place: int) -> None:
    fits = [
        v
        for v in p.values
        if len(v[1]) == len(shape)
        and all(a == b for i, (a, b) in enumerate(zip(v[1], shape, strict=True)) if i != place)
    ]
    parts = [p.pick(fits) for _ in range(1 + p.below(3))]
    extent = sum(entry[1][place] for entry in parts)
    result_shape = (*shape[:place], extent, *shape[place + 1 :])
    if prod(result_shape) > 800:
        return
    types = ", ".join(tensor(entry[1]) for entry in parts)
    names = ", ".join(entry[0] for entry in parts)
    p.emit(f"stablehlo.concatenate {names}, dim = {place} : ({types}) -> {tensor(result_shape)}", result_shape)


@along_a_dimension
def pieces(p: DrawnProgram, name: str, shape: Shape, place: int) -> None:
    """Pieces of one value beside one another, in any order: side by side, overlapping, of a few elements, of none."""
    parts, extent = [], 0
    for _ in range(1 + p.below(4)):
        start = p.below(shape[place] + 1)
        stop = start + p.below(shape[place] + 1 - start)
        ranges = ", ".join(f"{start}:{stop}" if d == place else f"0:{size}" for d, size in enumerate(shape))
        part = tensor((*shape[:place], stop - start, *shape[place + 1 :]))
        parts.append((p.name(), part))
        p.write(f"{parts[-1][0]} = stablehlo.slice {name} [{ranges}] : ({tensor(shape)}) -> {part}")
        extent += stop - start
    result_shape = (*shape[:place], extent, *shape[place + 1 :])
    if not 1 <= prod(result_shape) <= 800:
        return
    names, types = (", ".join(each) for each in zip(*parts, strict=True))
    p.emit(f"stablehlo.concatenate {names}, dim = {place} : ({types}) -> {tensor(result_shape)}", result_shape)


def roll(p: DrawnProgram) -> None:
    name, shape = p.value(1)
    places = [index for index, size in enumerate(shape) if size > 1]
    if not places:
        return
    place = p.pick(places)
    size = shape[place]
    shift = 1 + p.below(size - 1)

    def part(start: int, stop: int) -> tuple[str, Shape]:
        ranges = ", ".join(f"{start}:{stop}" if i == place else f"0:{s}" for i, s in enumerate(shape))
        result_shape = (*shape[:place], stop - start, *shape[place + 1 :])
        return p.emit(
            f"stablehlo.slice {name} [{ranges}] : ({tensor(shape)}) -> {tensor(result_shape)}", result_shape
        ), result_shape

    (a, sa), (b, sb) = part(size - shift, size), part(0, size - shift)
    p.emit(f"stablehlo.concatenate {a}, {b}, dim = {place} : ({tensor(sa)}, {tensor(sb)}) -> {tensor(shape)}", shape)


@of_a_rank
def reverse(p: DrawnProgram, name: str, shape: Shape) -> None:
    chosen = [index for index in range(len(shape)) if p.below(2)] or [0]
    p.emit(f"stablehlo.reverse {name}, dims = {chosen} : {tensor(shape)}", shape)


@of_a_rank
def iota(p: DrawnProgram, name: str, shape: Shape) -> None:
    iota_name = p.emit(f"stablehlo.iota dim = {p.below(len(shape))} : {tensor(shape)}", shape)
    p.emit(f"stablehlo.subtract {name}, {iota_name} : {tensor(shape)}", shape)


def select(p: DrawnProgram) -> None:
    name, shape = p.value()
    other = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    third = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    flag = p.emit(
        f"stablehlo.compare LT, {name}, {other} : ({tensor(shape)}, {tensor(shape)}) -> {tensor(shape, 'i1')}",
        shape,
        "i1",
    )
    p.emit(f"stablehlo.select {flag}, {third}, {name} : {tensor(shape, 'i1')}, {tensor(shape)}", shape)


def loop(p: DrawnProgram) -> None:
    name, shape = p.value()
    other = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    zero, loop_name = p.index(0), p.name()
    body = (
        f"{loop_name}:2 = stablehlo.while(%i = {zero}, %s = {name}) : tensor<i32>, {tensor(shape)}\ncond {{\n"
        f"%n = stablehlo.constant dense<3> : tensor<i32>\n"
        f"%t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        f"stablehlo.return %t : tensor<i1>\n}} do {{\n%one = stablehlo.constant dense<1> : tensor<i32>\n"
        f"%j = stablehlo.add %i, %one : tensor<i32>\n%u = stablehlo.maximum %s, {other} : {tensor(shape)}\n"
        f"%w = stablehlo.subtract %u, {other} : {tensor(shape)}\n"
        f"stablehlo.return %j, %w : tensor<i32>, {tensor(shape)}\n}}"
    )
    p.write(body)
    p.values.append((f"{loop_name}#1", shape))


def branch(p: DrawnProgram) -> None:
    name, shape = p.value()
    other = p.pick([entry for entry in p.values if entry[1] == shape])[0]
    index, case_name = p.index(p.below(2)), p.name()
    text = (
        f'{case_name} = "stablehlo.case"({index}) ({{\n%a = stablehlo.add {name}, {other} : {tensor(shape)}\n'
        f"stablehlo.return %a : {tensor(shape)}\n}}, {{\nstablehlo.return {other} : {tensor(shape)}\n}}) : "
        f"(tensor<i32>) -> {tensor(shape)}"
    )
    p.write(text)
    p.values.append((case_name, shape))
