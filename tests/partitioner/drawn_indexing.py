"""Random ops at places: slices, gathers, scatters, sorts."""

from __future__ import annotations

from math import prod

from tests.partitioner.drawing import SIZES, DrawnProgram, Shape, along_a_dimension, integers, of_a_rank, tensor


def dynamic_slice(p: DrawnProgram) -> None:
    name, shape = p.value(1)
    sizes = tuple(1 + p.below(size) for size in shape)
    if not shape:
        return
    starts, types = p.starts(len(shape))
    p.emit(
        f"stablehlo.dynamic_slice {name}, {starts}, sizes = {list(sizes)} : "
        f"({tensor(shape)}, {types}) -> {tensor(sizes)}",
        sizes,
    )


def dynamic_update_slice(p: DrawnProgram) -> None:
    name, shape = p.value(1)
    fits = [v for v in p.values if len(v[1]) == len(shape) and all(a <= b for a, b in zip(v[1], shape, strict=True))]
    update, extent = p.pick(fits)
    if not shape:
        return
    starts, types = p.starts(len(shape))
    p.emit(
        f"stablehlo.dynamic_update_slice {name}, {update}, {starts} : "
        f"({tensor(shape)}, {tensor(extent)}, {types}) -> {tensor(shape)}",
        shape,
    )


def random_slices(p: DrawnProgram, shape: Shape) -> tuple[int, str, str, Shape]:
    """A dimension, indices along it of which some lie outside, their element type, and the shape of the slices there,
    the indices first."""
    place, count = p.below(len(shape)), p.pick(SIZES)
    values, element = p.positions(count)
    indices = p.constant(str(values), (count,), element)
    return place, indices, element, (count, *(size for index, size in enumerate(shape) if index != place))


@of_a_rank
def gather(p: DrawnProgram, name: str, shape: Shape) -> None:
    place, indices, element, out = random_slices(p, shape)
    offsets = list(range(1, len(shape)))
    sizes = [1 if index == place else size for index, size in enumerate(shape)]
    p.emit(
        f'"stablehlo.gather"({name}, {indices}) <{{dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, '
        f"collapsed_slice_dims = [{place}], start_index_map = [{place}], index_vector_dim = 1>, "
        f"slice_sizes = {integers(sizes)}}}> : ({tensor(shape)}, {tensor(out[:1], element)}) -> {tensor(out)}",
        out,
    )


@of_a_rank
def scatter(p: DrawnProgram, name: str, shape: Shape) -> None:
    place, indices, element, updates_shape = random_slices(p, shape)
    updates = p.emit(
        f"stablehlo.broadcast_in_dim {p.scalar(3.0)}, dims = [] : (tensor<f32>) -> {tensor(updates_shape)}",
        updates_shape,
    )
    windows = list(range(1, len(shape)))
    fold = p.pick(("add", "maximum", "minimum"))
    p.emit(
        f'"stablehlo.scatter"({name}, {indices}, {updates}) <{{scatter_dimension_numbers = #stablehlo.scatter<'
        f"update_window_dims = {windows}, inserted_window_dims = [{place}], scatter_dims_to_operand_dims = [{place}], "
        f"index_vector_dim = 1>}}> ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        f"%c = stablehlo.{fold} %a, %b : tensor<f32>\nstablehlo.return %c : tensor<f32>\n}}) : "
        f"({tensor(shape)}, {tensor(updates_shape[:1], element)}, {tensor(updates_shape)}) -> {tensor(shape)}",
        shape,
    )


@of_a_rank
def gather_window(p: DrawnProgram, name: str, shape: Shape) -> None:
    """Windows of a value at random places."""
    sizes = tuple(1 + p.below(size) for size in shape)
    count, rank = 1 + p.below(6), len(shape)
    result_shape = (count, *sizes)
    if prod(result_shape) > 800:
        return
    values, element = p.positions(count * rank)
    rows = [values[first : first + rank] for first in range(0, count * rank, rank)]
    indices = p.constant(str(rows), (count, rank), element)
    p.emit(
        f'"stablehlo.gather"({name}, {indices}) <{{dimension_numbers = #stablehlo.gather<offset_dims = '
        f"{list(range(1, rank + 1))}, start_index_map = {list(range(rank))}, index_vector_dim = 1>, slice_sizes = "
        f"{integers(sizes)}}}> : ({tensor(shape)}, {tensor((count, rank), element)}) -> {tensor(result_shape)}",
        result_shape,
    )


@along_a_dimension
def sort(p: DrawnProgram, name: str, shape: Shape, place: int) -> None:
    p.emit(
        f'"stablehlo.sort"({name}) <{{dimension = {place} : i64, is_stable = true}}> ({{\n'
        f"^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> "
        f"tensor<i1>\nstablehlo.return %c : tensor<i1>\n}}) : ({tensor(shape)}) -> {tensor(shape)}",
        shape,
    )


@along_a_dimension
def sort_pair(p: DrawnProgram, name: str, shape: Shape, place: int) -> None:
    """A value sorted together with where its elements came from."""
    iota, result = p.name(), p.name()
    text = (
        f"{iota} = stablehlo.iota dim = {place} : {tensor(shape)}\n"
        f'{result}:2 = "stablehlo.sort"({name}, {iota}) <{{dimension = {place} : i64, is_stable = true}}> ({{\n'
        "^bb0(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<f32>, %j: tensor<f32>):\n"
        "%c = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        f"stablehlo.return %c : tensor<i1>\n}}) : ({tensor(shape)}, {tensor(shape)})"
        f" -> ({tensor(shape)}, {tensor(shape)})"
    )
    p.write(text)
    p.emit(f"stablehlo.add {result}#0, {result}#1 : {tensor(shape)}", shape)


@of_a_rank
def top_k(p: DrawnProgram, name: str, shape: Shape) -> None:
    taken = 1 + p.below(shape[-1])
    out, result = (*shape[:-1], taken), p.name()
    text = f"{result}:2 = chlo.top_k({name}, k = {taken}) : {tensor(shape)} -> ({tensor(out)}, {tensor(out, 'i32')})"
    p.write(text)
    places = p.emit(f"stablehlo.convert {result}#1 : ({tensor(out, 'i32')}) -> {tensor(out)}", out)
    p.emit(f"stablehlo.subtract {result}#0, {places} : {tensor(out)}", out)
