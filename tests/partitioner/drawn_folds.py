"""Random ops that fold: reductions, windows, contractions."""

from __future__ import annotations

from math import prod

from tests.partitioner.drawing import DrawnProgram, Shape, along_a_dimension, integers, of_a_rank, tensor


@of_a_rank
def reduce(p: DrawnProgram, name: str, shape: Shape) -> None:
    chosen = [index for index in range(len(shape)) if p.below(2)] or [0]
    op, start = p.pick((("add", 0.0), ("maximum", -1e30), ("minimum", 1e30), ("add", 1.0)))
    init = p.scalar(start)
    result_shape = tuple(size for index, size in enumerate(shape) if index not in chosen)
    p.emit(
        f"stablehlo.reduce({name} init: {init}) applies stablehlo.{op} across dimensions = {chosen} : "
        f"({tensor(shape)}, tensor<f32>) -> {tensor(result_shape)}",
        result_shape,
    )


@along_a_dimension
def dot(p: DrawnProgram, name: str, shape: Shape, place: int) -> None:
    fits = [(v, d) for v in p.values for d, size in enumerate(v[1]) if size == shape[place]]
    (other, other_shape), other_place = p.pick(fits)
    result_shape = (
        *(s for i, s in enumerate(shape) if i != place),
        *(s for i, s in enumerate(other_shape) if i != other_place),
    )
    if len(result_shape) > 4 or prod(result_shape) > 800:
        return
    sign = p.emit(f"stablehlo.sign {name} : {tensor(shape)}", shape)
    p.emit(
        f"stablehlo.dot_general {sign}, {other}, contracting_dims = [{place}] x [{other_place}] : "
        f"({tensor(shape)}, {tensor(other_shape)}) -> {tensor(result_shape)}",
        result_shape,
    )


@along_a_dimension
def reduce_window(p: DrawnProgram, name: str, shape: Shape, place: int) -> None:
    size = shape[place]
    if p.below(2):
        extents, stride, base, step = size, 1, 1, 1
        padding = p.pick(((size - 1, 0), (0, size - 1)))
    else:
        extents, stride, base, step = 1 + p.below(3), 1 + p.below(2), 1 + p.below(2), 1 + p.below(2)
        padding = (p.below(3), p.below(3))
    reach = (extents - 1) * step + 1
    out = ((size - 1) * base + 1 + sum(padding) - reach) // stride + 1
    result_shape = (*shape[:place], out, *shape[place + 1 :])
    if out < 1 or prod(result_shape) > 800:
        return

    def row(value: int) -> str:
        return integers([value if index == place else 1 for index in range(len(shape))])

    pads = ", ".join(f"[{padding[0]}, {padding[1]}]" if i == place else "[0, 0]" for i in range(len(shape)))
    fold, start = p.pick((("add", 0.0), ("maximum", -1e30)))
    p.emit(
        f'"stablehlo.reduce_window"({name}, {p.scalar(start)}) <{{window_dimensions = {row(extents)}, '
        f"window_strides = {row(stride)}, base_dilations = {row(base)}, window_dilations = {row(step)}, "
        f"padding = dense<[{pads}]> : tensor<{len(shape)}x2xi64>}}> ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        f"%c = stablehlo.{fold} %a, %b : tensor<f32>\nstablehlo.return %c : tensor<f32>\n}}) : "
        f"({tensor(shape)}, tensor<f32>) -> {tensor(result_shape)}",
        result_shape,
    )


def convolution(p: DrawnProgram) -> None:
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
        f"stablehlo.broadcast_in_dim {p.scalar(1.0)}, dims = [] : (tensor<f32>) -> {tensor(kernel_shape)}",
        kernel_shape,
    )
    sign = p.emit(f"stablehlo.sign {name} : {tensor(shape)}", shape)
    result_shape = (batch, out, out_features)
    p.emit(
        f"stablehlo.convolution({sign}, {kernel}) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{stride = "
        f"[{stride}], pad = [[{low}, {high}]], lhs_dilate = [{base}], rhs_dilate = [{step}]}} {{batch_group_count = 1 "
        f": i64, feature_group_count = 1 : i64}} : ({tensor(shape)}, {tensor(kernel_shape)}) -> {tensor(result_shape)}",
        result_shape,
    )


def batch_dot(p: DrawnProgram) -> None:
    """A dot of a value with itself or another of its shape: the first dimension is batch, the last contracted."""
    name, shape = p.value(2)
    if len(shape) < 2:
        return
    fits = [v for v in p.values if len(v[1]) >= 2 and (v[1][0], v[1][-1]) == (shape[0], shape[-1])]
    other, other_shape = p.pick(fits)
    result_shape = (shape[0], *shape[1:-1], *other_shape[1:-1])
    if prod(result_shape) > 800 or len(result_shape) > 4:
        return
    sign = p.emit(f"stablehlo.sign {name} : {tensor(shape)}", shape)
    last = len(shape) - 1, len(other_shape) - 1
    p.emit(
        f"stablehlo.dot_general {sign}, {other}, batching_dims = [0] x [0], contracting_dims = [{last[0]}] x "
        f"[{last[1]}] : ({tensor(shape)}, {tensor(other_shape)}) -> {tensor(result_shape)}",
        result_shape,
    )


@along_a_dimension
def arg_reduce(p: DrawnProgram, name: str, shape: Shape, place: int) -> None:
    """The place of the first largest element, as argmax is written: two values folded together."""
    out = tuple(size for index, size in enumerate(shape) if index != place)
    iota, least, none, result = p.name(), p.scalar(-1e30), p.index(0), p.name()
    whole_numbers = tensor(shape, "i32")
    text = (
        f"{iota} = stablehlo.iota dim = {place} : {whole_numbers}\n"
        f'{result}:2 = "stablehlo.reduce"({name}, {iota}, {least}, {none}) <{{dimensions = {integers([place])}}}> ({{\n'
        "^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>):\n"
        "%g = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "%e = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "%l = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "%f = stablehlo.and %e, %l : tensor<i1>\n%t = stablehlo.or %g, %f : tensor<i1>\n"
        "%x = stablehlo.select %g, %a, %b : tensor<i1>, tensor<f32>\n"
        "%y = stablehlo.select %t, %i, %j : tensor<i1>, tensor<i32>\n"
        "stablehlo.return %x, %y : tensor<f32>, tensor<i32>\n}) : "
        f"({tensor(shape)}, {whole_numbers}, tensor<f32>, tensor<i32>) -> ({tensor(out)}, {tensor(out, 'i32')})"
    )
    p.write(text)
    p.emit(f"stablehlo.convert {result}#1 : ({tensor(out, 'i32')}) -> {tensor(out)}", out)


@along_a_dimension
def pool_gradient(p: DrawnProgram, _: str, shape: Shape, place: int) -> None:
    """select_and_scatter with windows side by side, or overlapping."""
    extent, stride = 1 + p.below(3), 1 + p.below(3)
    out = (shape[place] - extent) // stride + 1
    if out < 1:
        return
    source_shape = (*shape[:place], out, *shape[place + 1 :])
    source = p.emit(
        f"stablehlo.broadcast_in_dim {p.scalar(2.0)}, dims = [] : (tensor<f32>) -> {tensor(source_shape)}",
        source_shape,
    )

    def row(value: int) -> str:
        return integers([value if index == place else 1 for index in range(len(shape))])

    iota = p.emit(f"stablehlo.iota dim = {place} : {tensor(shape)}", shape)
    p.emit(
        f'"stablehlo.select_and_scatter"({iota}, {source}, {p.scalar(0.0)}) <{{window_dimensions = {row(extent)}, '
        f"window_strides = {row(stride)}}}> ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        "%c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "stablehlo.return %c : tensor<i1>\n}, {\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        "%c = stablehlo.add %a, %b : tensor<f32>\n"
        f"stablehlo.return %c : tensor<f32>\n}}) : ({tensor(shape)}, {tensor(source_shape)}, tensor<f32>)"
        f" -> {tensor(shape)}",
        shape,
    )
