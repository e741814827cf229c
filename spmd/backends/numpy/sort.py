"""Sorting: StableHLO specification, "sort".

A comparator that orders by keys uses NumPy's sorts: a single operand is sorted directly, several by integers that
combine an element's key and its position, which makes any sort stable. Any other comparator runs in a merge sort whose
comparisons are vectorized over all elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from collectives.element_types import is_float
from spmd.analysis.comparators import LEAST, MOST, SortKey, sort_keys
from spmd.analysis.custom_calls import call_attributes
from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel, kernel, make_kernel
from spmd.backends.numpy.pointwise import is_sign_and_magnitude
from spmd.backends.numpy.sort_unstable import order_of_ranks
from spmd.dialects.make import make_op
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Op, Region, Value, captured_values, copy_block
from spmd.support.arrays import Array, DType, Results, bits_dtype
from spmd.types import I1, ElementType, TensorType, TupleType, element_type_of

#: Maps rows (rows, n), one array per operand, and captured values to the order of each row.
Order = Callable[[Sequence[Array], Sequence[Array]], Array]


@kernel("stablehlo.sort")
def sort(op: Op, context: Context) -> Kernel:
    return sorter(op, context)


def sorter(op: Op, context: Context) -> Kernel:
    """Return the kernel of a sort of all operands along one dimension."""
    count = len(op.results)
    dimension = op["dimension"]
    shape = op.operands[0].tensor.static_shape
    axis = dimension % len(shape) if shape else 0
    if not shape or shape[axis] < 2 or 0 in shape:
        call: Callable[..., Results] = (lambda operand, *_: operand) if count == 1 else lambda *arrays: arrays[:count]
        return Kernel(call, aliases=tuple(range(count)))
    keys = sort_keys(op.regions[0])
    order = _merge_order(op, context) if keys is None else _key_order(op, context, keys)
    counted = [_counts_along(operand, axis) for operand in op.operands]

    def by_order(*arrays: Array) -> Results:
        rows = [_rows(array, axis) for array in arrays[:count]]
        places = order(rows, arrays[count:])
        # Taking from the flat array is much faster than along an axis.
        flat = places if len(places) == 1 else places + np.arange(len(places))[:, None] * shape[axis]
        results = tuple(
            _from_rows(places.astype(row.dtype) if counts else row.reshape(-1).take(flat), shape, axis)
            for row, counts in zip(rows, counted, strict=True)
        )
        return results[0] if count == 1 else results

    dtype = op.operands[0].tensor.dtype
    if count == 1 and keys is not None and len(keys) == 1 and keys[0].operand == 0 and dtype.kind != "c":
        return Kernel(_values_sorter(keys[0], dtype, axis, by_order))
    return Kernel(by_order)


def _rows(array: Array, axis: int) -> Array:
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def _from_rows(rows: Array, shape: tuple[int, ...], axis: int) -> Array:
    moved = (*shape[:axis], *shape[axis + 1 :], shape[axis])
    return np.moveaxis(rows.reshape(moved), -1, axis)


def _counts_along(value: Value, axis: int) -> bool:
    """Return whether an operand is an iota along `axis`: sorted, it is the order itself."""
    op = value.defining_op
    while op is not None and op.name == "stablehlo.broadcast_in_dim" and axis in op["broadcast_dimensions"]:
        axis = op["broadcast_dimensions"].index(axis)
        op = op.operands[0].defining_op
    return op is not None and op.name == "stablehlo.iota" and op["iota_dimension"] == axis


# --- a single operand ------------------------------------------------------------------------------------------------


def _values_sorter(key: SortKey, dtype: DType, axis: int, by_order: Callable[..., Any]) -> Callable[..., Array]:
    """Return a sort of one operand. Ties have equal bits, unless there are zeros of both signs or different NaNs: then
    it sorts by order.
    """
    floating = is_float(dtype)
    widens = floating and not is_sign_and_magnitude(element_type_of(dtype))
    sorted_dtype = np.dtype(np.float32) if widens else dtype
    natural = sorted_dtype in (np.float32, np.float64) and not (key.total_order and not key.canonical)
    reverse = key.descending

    def call(operand: Array, *captured: Array) -> Array:
        values = operand.astype(np.float32) if widens else operand
        if floating and (key.canonical or not key.total_order) and _has_unequal_ties(values):
            ordered: Array = by_order(operand, *captured)
            return ordered
        if floating and not natural:
            values = _ordered_bits(values)
        narrow = not floating and dtype.kind not in "iub"
        in_order = np.sort(values.astype(np.int8) if narrow else values, axis=axis)
        if reverse:
            in_order = np.flip(in_order, axis)
        if floating and not natural:
            in_order = _from_ordered_bits(in_order, sorted_dtype)
        return in_order.astype(dtype) if narrow or widens else in_order

    return call


def _has_unequal_ties(array: Array) -> bool:
    """Return whether there are zeros of both signs, or NaNs other than the default one."""
    bits = np.ascontiguousarray(array).view(bits_dtype(array.dtype))
    sign = bits.dtype.type(1 << (8 * array.dtype.itemsize - 1))
    if (bits == sign).any() and (bits == 0).any():
        return True
    strange = np.isnan(array)
    if not strange.any():
        return False
    usual = np.abs(np.asarray(np.nan, np.float64)).astype(array.dtype).view(bits.dtype)
    return bool((bits[strange] != usual).any())


def _ordered_bits(array: Array) -> Array:
    """Return floats as unsigned integers in IEEE 754's total order: -NaN, -inf, ..., -0, +0, ..., inf, NaN."""
    width = array.dtype.itemsize
    bits = np.ascontiguousarray(array).view(bits_dtype(array.dtype))
    # Flip all bits of negative numbers, and the sign of others.
    sign = bits.dtype.type(1 << (8 * width - 1))
    flips = (bits.view(f"i{width}") >> (8 * width - 1)).view(bits.dtype) | sign
    flipped: Array = bits ^ flips
    return flipped


def _from_ordered_bits(ordered: Array, dtype: DType) -> Array:
    width = dtype.itemsize
    sign = ordered.dtype.type(1 << (8 * width - 1))
    one = ordered.dtype.type(1)
    flips = ((ordered >> ordered.dtype.type(8 * width - 1)) - one) | sign
    values: Array = (ordered ^ flips).view(dtype)
    return values


# --- by keys ---------------------------------------------------------------------------------------------------------


def _key_order(op: Op, context: Context, keys: Sequence[SortKey]) -> Order:
    functions = [None if key.operand is not None else key_function(op, key, context) for key in keys]
    length = op.operands[0].tensor.static_shape[op["dimension"]]
    unstable = not op["is_stable"] and len(op.operands) > 1 and LEAST <= length <= MOST

    def order(rows: Sequence[Array], captured: Sequence[Array]) -> Array:
        codes = []
        for key, function in zip(keys, functions, strict=True):
            values = rows[key.operand] if key.operand is not None else None
            if values is None:
                assert function is not None
                values = function(*rows, *captured)
            parts = [values.real, values.imag] if values.dtype.kind == "c" else [values]
            codes += [_code(part, key) for part in parts]
        positions = _order_of_codes(codes)
        return _unstable(positions, codes) if unstable else positions

    return order


def _unstable(order: Array, codes: list[Array]) -> Array:
    """Return the order that std::sort leaves, from the stable one, for rows with ties."""
    ordered = [np.take_along_axis(code, order, 1) for code in codes]
    differs = np.logical_or.reduce([code[:, 1:] != code[:, :-1] for code in ordered])
    tied = ~differs.all(axis=1)
    if tied.any():
        ranks = np.zeros((int(tied.sum()), order.shape[1]), np.int64)
        np.put_along_axis(ranks, order[tied, 1:], np.cumsum(differs[tied], axis=1), 1)
        order[tied] = order_of_ranks(ranks, order[tied])
    return order


def _code(values: Array, key: SortKey) -> Array:
    """Return a key as unsigned integers in ascending order."""
    dtype = values.dtype
    if dtype == np.bool_:
        code = values.view(np.uint8)
    elif is_float(dtype):
        if not is_sign_and_magnitude(element_type_of(dtype)):
            values = values.astype(np.float32)
        if key.canonical or not key.total_order:
            values = _canonical(values)
        code = _ordered_bits(values)
    else:
        if dtype.kind not in "iu":
            values = values.astype(np.int8)
        width = values.dtype.itemsize
        code = np.ascontiguousarray(values).view(bits_dtype(values.dtype))
        if values.dtype.kind == "i":
            code = code ^ code.dtype.type(1 << (8 * width - 1))
    return ~code if key.descending else code


def _canonical(values: Array) -> Array:
    """Return values with unsigned zeros and one NaN."""
    bits = np.array(values).view(bits_dtype(values.dtype))
    minus_zero, strange = bits == bits.dtype.type(1 << (8 * values.dtype.itemsize - 1)), np.isnan(values)
    if minus_zero.any():
        bits[minus_zero] = 0
    if strange.any():
        bits[strange] = np.abs(np.asarray(np.nan, np.float64)).astype(values.dtype).view(bits.dtype)
    kept: Array = bits.view(values.dtype)
    return kept


def _order_of_codes(codes: list[Array]) -> Array:
    """Return the stable order of each row by `codes`, the most significant first.

    Radix sort: digits are sorted from the least significant on, each packed with its element's position into 64 bits.
    """
    rows, size = codes[0].shape
    place_bits = max(1, (size - 1).bit_length())
    places, mask = np.arange(size, dtype=np.uint64), np.uint64((1 << place_bits) - 1)
    order: Array | None = None
    for digit in _digits(codes, 64 - place_bits):
        if order is not None:
            digit = np.take_along_axis(digit, order, 1) if rows > 1 else digit[:, order[0]]
        packed = (digit << np.uint64(place_bits)) | places
        packed.sort(axis=1)
        positions = (packed & mask).astype(np.int64)
        order = positions if order is None else np.take_along_axis(order, positions, 1)
    assert order is not None
    return order


def _digits(codes: list[Array], most: int) -> Iterator[Array]:
    """Yield the codes as digits of at most `most` bits, the least significant first; narrow neighbours are joined."""
    held, width = None, 0
    for code in reversed(codes):
        bits = 8 * code.dtype.itemsize
        wide = code.astype(np.uint64)
        halves = [(wide & np.uint64(2**32 - 1), 32), (wide >> np.uint64(32), 32)]
        parts = halves if bits > most else [(wide, bits)]
        for part, part_bits in parts:
            if held is not None and width + part_bits <= most:
                held, width = held | (part << np.uint64(width)), width + part_bits
                continue
            if held is not None:
                yield held
            held, width = part, part_bits
    assert held is not None
    yield held


def key_function(op: Op, key: SortKey, context: Context) -> Callable[..., Array]:
    """Return `function(*operands, *captured)` that computes `key` for every element."""
    values: dict[Value, Value] = {}
    block = copy_block(op.regions[0].block, values)
    block.terminator.operands = (values.get(key.value, key.value),)
    keyed = op.clone(op.operands, regions=[Region([block])])
    everything = captured_values(op)
    positions = [everything.index(value) for value in captured_values(keyed)]
    function = context.vectorized(keyed, 0)
    count = len(op.operands)

    def call(*arrays: Array) -> Array:
        operands, captured = arrays[:count], arrays[count:]
        sides = [operand for operand in operands for _ in range(2)]
        result: Array = function(*sides, *(captured[position] for position in positions))[0]
        return result

    return call


# --- by any comparator -----------------------------------------------------------------------------------------------


def _merge_order(op: Op, context: Context) -> Order:
    compare = context.vectorized(op, 0)

    def order(rows: Sequence[Array], captured: Sequence[Array]) -> Array:
        height, size = rows[0].shape
        flat = [row.reshape(-1) for row in rows]
        indices: Array = np.arange(height * size)

        def before(left: Array, right: Array) -> Array:
            """Return whether the element at `left` precedes that at `right`."""
            sides = [side for operand in flat for side in (operand[left], operand[right])]
            first: Array = compare(*sides, *captured)[0]
            return first

        run = 1
        while run < size:
            indices = _merge_runs(indices, size, run, before)
            run *= 2
        places: Array = indices.reshape(height, size) - np.arange(height)[:, None] * size
        return places

    return order


def _merge_runs(indices: Array, size: int, run: int, before: Callable[[Array, Array], Array]) -> Array:
    """Merge adjacent sorted runs of each row of `size`.

    An element's position is its rank in its own run plus its rank in the other run of the pair, found by a binary
    search for all elements at once. Of equal elements, those of the left run come first.
    """
    places = np.arange(len(indices))
    column = places % size
    start = column // (2 * run) * (2 * run)
    offset = column - start
    on_left = offset < run
    left_size = np.minimum(run, size - start)
    right_size = np.clip(size - start - run, 0, run)
    base = places - offset
    other = np.where(on_left, base + left_size, base)
    low, high = np.zeros_like(places), np.where(on_left, right_size, left_size)
    last = len(indices) - 1
    for _ in range(run.bit_length()):
        middle = (low + high) // 2
        probe = indices[np.minimum(other + middle, last)]
        right_first = before(np.where(on_left, probe, indices), np.where(on_left, indices, probe))
        active = low < high
        goes_up = right_first == on_left
        low = np.where(active & goes_up, middle + 1, low)
        high = np.where(active & ~goes_up, middle, high)
    rank = np.where(on_left, offset, offset - left_size) + low
    merged = np.full_like(indices, -1)
    merged[base + rank] = indices
    if (merged < 0).any():  # the comparator is no order: still return a permutation
        merged = indices[np.argsort(base + rank, kind="stable")]
    return merged


# --- the first of an order -------------------------------------------------------------------------------------------


@target("ApproxTopK")
def approximate_top_k(op: Op, context: Context) -> Kernel:
    """Return the exact first `top_k` of each operand in the order of the called comparator; initial values
    are unused.
    """
    return Kernel(first_in_order(op, context, int(call_attributes(op)["backend_config"]["top_k"])))


@target("TopK")
def top_k(op: Op, context: Context) -> Kernel:
    """Return XLA's TopK: the first of the last dimension, and their indices, in the order of the called comparator.

    The comparator takes two elements, and optionally their indices; by default the largest come first. Of equal
    elements the one with the lower index comes first. Source: XLA's TopkDecomposer.
    """
    operand = op.operands[0].tensor
    values, places = types.types if isinstance(types := op.result_types[0], TupleType) else op.result_types
    assert isinstance(values, TensorType) and isinstance(places, TensorType)
    count = values.static_shape[-1]
    called = op["called_computations"]
    region = _with_places(context.lookup(called[0], op), op, places) if called else None
    if region is None or _is_largest_first(region, operand):
        k = make_op("chlo.top_k", op.operands, [values, places], {"k": count}, location=op.location)
        return make_kernel(k, context)
    numbers = operand.with_element_type(places.element_type)
    iota = make_op("stablehlo.iota", [], [numbers], {"iota_dimension": operand.rank - 1})
    attributes = {"dimension": operand.rank - 1, "is_stable": True}
    given = [op.operands[0], iota.result]
    ordered = make_op("stablehlo.sort", given, [operand, numbers], attributes, [region], location=op.location)
    by_order = sorter(ordered, context).call

    def call(array: Array) -> Results:
        along = np.broadcast_to(np.arange(array.shape[-1]).astype(numbers.dtype), array.shape)
        return tuple(each[..., :count] for each in by_order(array, along))

    return Kernel(call)


def _is_largest_first(region: Region, operand: TensorType) -> bool:
    """Return whether a comparator of pairs orders as chlo.top_k: by the first operand only, descending in
    total order.
    """
    keys = sort_keys(region)
    if keys is None or len(keys) != 1 or keys[0].operand != 0 or keys[0].canonical or not keys[0].descending:
        return False
    element = operand.element_type
    return isinstance(element, ElementType) and (keys[0].total_order or not element.is_float)


def _with_places(comparator: Function, op: Op, places: TensorType) -> Region:
    """Return the comparator's body with indices as additional parameters."""
    body = copy_block(comparator.body, {})
    element, place = op.operands[0].tensor.with_shape(()), places.with_shape(())
    for _ in range(len(body.arguments), 4) if len(body.arguments) == 2 else ():
        body.add_argument(place)
    wanted, got = [element, element, place, place], [argument.type for argument in body.arguments]
    returned = body.terminator.operand_types
    if got != wanted or list(returned) != [TensorType((), I1)]:
        text = f"({', '.join(map(str, got))}) -> ({', '.join(map(str, returned))})"
        message = (
            f"@{comparator.symbol} compares two elements and their places, ({element}, {element}, {place}, {place})"
        )
        raise CompileError(Diagnostic(op.location, f"{message} -> tensor<i1>, and is {text}", op.name))
    return Region([body])


def first_in_order(op: Op, context: Context, count: int) -> Callable[..., Results]:
    """Return a function of the operands of a call like ApproxTopK: the first `count` of the sorted ones."""
    dimension = int(call_attributes(op)["backend_config"]["reduction_dim"])
    operands = op.operands[: len(op.results)]
    comparator = context.lookup(op["called_computations"][0], op)
    attributes = {"dimension": dimension, "is_stable": True}
    regions = [Region([copy_block(comparator.body, {})])]
    types = [operand.type for operand in operands]
    ordered = make_op("stablehlo.sort", operands, types, attributes, regions, location=op.location)
    by_order = sorter(ordered, context).call
    first = (*(slice(None),) * dimension, slice(0, count))

    def call(*arrays: Array) -> Results:
        results = by_order(*arrays[: len(operands)])
        return results[first] if len(operands) == 1 else tuple(result[first] for result in results)

    return call
