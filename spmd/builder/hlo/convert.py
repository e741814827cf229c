"""Ops on arrays as HLO instructions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from spmd import types as t
from spmd.builder.hlo.algorithms import algorithm_text
from spmd.builder.hlo.opcodes import PLAIN
from spmd.builder.hlo.printer import CONVERTERS, Body, converts, integers
from spmd.dialects.bounded import bound_shape, with_bounds
from spmd.dialects.scatters import drops_whole_windows, has_wide_windows, is_of_xla
from spmd.dialects.shapes import bounds_of, tensor
from spmd.ir import Op


def _plain(opcode: str, body: Body, op: Op) -> None:
    body.instruction(op, opcode, op.operands)


for _opcode, (_name, _) in PLAIN.items():
    if _name.startswith("stablehlo.") or _name == "chlo.erf":  # clients of XLA do not run the others
        CONVERTERS[_name] = functools.partial(_plain, _opcode)
for _opcode in ("convert", "bitcast-convert", "tuple"):
    CONVERTERS["stablehlo." + _opcode.replace("-", "_")] = functools.partial(_plain, _opcode)
CONVERTERS["chlo.tan"] = CONVERTERS["stablehlo.tan"]
CONVERTERS["stablehlo.replica_id"] = functools.partial(_plain, "replica-id")
CONVERTERS["stablehlo.partition_id"] = functools.partial(_plain, "partition-id")


@converts("stablehlo.compare")
def _compare(body: Body, op: Op) -> None:
    total = ["type=TOTALORDER"] if op["compare_type"] == "TOTALORDER" else []
    body.instruction(op, "compare", op.operands, [f"direction={op['comparison_direction']}", *total])


@converts("stablehlo.reduce_precision")
def _reduce_precision(body: Body, op: Op) -> None:
    bits = [f"{name}={op[name]}" for name in ("exponent_bits", "mantissa_bits")]
    body.instruction(op, "reduce-precision", op.operands, bits)


@converts("stablehlo.iota")
def _iota(body: Body, op: Op) -> None:
    body.instruction(op, "iota", [], [f"iota_dimension={op['iota_dimension']}"])


@converts("stablehlo.broadcast_in_dim")
def _broadcast(body: Body, op: Op) -> None:
    """Write a broadcast, which keeps sizes in HLO: dimensions of size 1 that grow are removed first."""
    operand, dimensions = op.operands[0], op["broadcast_dimensions"]
    sizes, most, target = operand.tensor.shape, bound_shape(operand.tensor), bound_shape(op.result.tensor)
    kept = [own for own, number in enumerate(dimensions) if most[own] == target[number]]
    name = body.name_of(operand)
    if len(kept) != len(sizes):
        bounds = bounds_of(operand.tensor)
        less = tensor([sizes[own] for own in kept], operand.tensor.element_type, [bounds[own] for own in kept])
        name = body.add("reshape", less, [name])
    body.instruction(op, "broadcast", [name], ["dimensions=" + integers(dimensions[own] for own in kept)])


@converts("stablehlo.reshape")
def _reshape(body: Body, op: Op) -> None:
    dynamic = [dimension for dimension, size in enumerate(op.result.tensor.shape) if size is None]
    body.instruction(op, "reshape", op.operands, [f"inferred_dimension={d}" for d in dynamic[:1]])


@converts("stablehlo.transpose")
def _transpose(body: Body, op: Op) -> None:
    body.instruction(op, "transpose", op.operands, ["dimensions=" + integers(op["permutation"])])


@converts("stablehlo.reverse")
def _reverse(body: Body, op: Op) -> None:
    body.instruction(op, "reverse", op.operands, ["dimensions=" + integers(op["dimensions"])])


@converts("stablehlo.concatenate")
def _concatenate(body: Body, op: Op) -> None:
    body.instruction(op, "concatenate", op.operands, ["dimensions=" + integers([op["dimension"]])])


@converts("stablehlo.slice")
def _slice(body: Body, op: Op) -> None:
    triples = zip(op["start_indices"], op["limit_indices"], op["strides"], strict=True)
    ranges = (f"[{start}:{limit}" + (f":{step}]" if step != 1 else "]") for start, limit, step in triples)
    body.instruction(op, "slice", op.operands, ["slice={" + ", ".join(ranges) + "}"])


@converts("stablehlo.pad")
def _pad(body: Body, op: Op) -> None:
    columns = (op[name] for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    entries = ("_".join(map(str, entry if entry[2] else entry[:2])) for entry in zip(*columns, strict=True))
    body.instruction(op, "pad", op.operands, ["padding=" + "x".join(entries)])


@converts("chlo.top_k")
def _top_k(body: Body, op: Op) -> None:
    body.instruction(op, "topk", op.operands, [f"k={op['k']}", "largest=true"])


@converts("stablehlo.get_dimension_size", "stablehlo.set_dimension_size")
def _dimension_size(body: Body, op: Op) -> None:
    opcode = op.name.partition(".")[2].replace("_", "-")
    body.instruction(op, opcode, op.operands, ["dimensions=" + integers([op["dimension"]])])


@converts("stablehlo.get_tuple_element")
def _element(body: Body, op: Op) -> None:
    body.instruction(op, "get-tuple-element", op.operands, [f"index={op['index']}"])


# --- indexing --------------------------------------------------------------------------------------------------------


@converts("stablehlo.dynamic_slice")
def _dynamic_slice(body: Body, op: Op) -> None:
    sizes = "dynamic_slice_sizes=" + integers(op["slice_sizes"])
    body.instruction(op, "dynamic-slice", op.operands, [sizes])


@converts("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(body: Body, op: Op) -> None:
    body.instruction(op, "dynamic-update-slice", op.operands)


def _flags(op: Op, *names: str) -> list[str]:
    return [f"{name}=true" for name in names if op[name]]


def _numbers(numbers: Any, names: Sequence[str], optional: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield f"{name}={integers(getattr(numbers, name))}"
    yield f"index_vector_dim={numbers.index_vector_dim}"
    for name in optional:
        if getattr(numbers, name):
            yield f"{name}={integers(getattr(numbers, name))}"


@converts("stablehlo.gather")
def _gather(body: Body, op: Op) -> None:
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map")
    batching = ("operand_batching_dims", "start_indices_batching_dims")
    numbers = [*_numbers(op["dimension_numbers"], names, batching), "slice_sizes=" + integers(op["slice_sizes"])]
    body.instruction(op, "gather", op.operands, [*numbers, *_flags(op, "indices_are_sorted")])


@converts("stablehlo.scatter")
def _scatter(body: Body, op: Op) -> None:
    """Write a scatter; where elements are tested one by one, pad the operands, since XLA skips windows partly outside.

    The operands are then padded by what windows may stick out, the indices are shifted, and the padding is cut off.
    """
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    batching = ("input_batching_dims", "scatter_indices_batching_dims")
    numbers = _numbers(op["scatter_dimension_numbers"], names, batching)
    attributes = [*numbers, *_flags(op, "indices_are_sorted", "unique_indices")]
    attributes.append("to_apply=" + body.applied(op.regions[0]))
    if drops_whole_windows(op) or not has_wide_windows(op) or is_of_xla(body.printer.module):
        body.instruction(op, "scatter", op.operands, attributes)
        return
    count, room = len(op.results), _room(op)
    around = ["padding=" + "x".join(f"{each}_{each}" for each in room)]
    zeros = [body.add("constant", value.tensor.with_shape(()), [_ZEROS.get(value.tensor.scalar_type.kind, "0")])
             for value in op.operands[:count]]  # fmt: skip
    types = [_wider(value.tensor, room) for value in op.operands[:count]]
    padded = [
        body.add("pad", type, [body.name_of(value), zero], around)
        for value, zero, type in zip(op.operands[:count], zeros, types, strict=True)
    ]
    shifted = _shifted(body, op, room)
    whole = types[0] if count == 1 else t.TupleType(tuple(types))
    name = body.add("scatter", whole, [*padded, shifted, *body.names_of(op.operands[count + 1 :])], attributes)
    cut = ["padding=" + "x".join(f"{-each}_{-each}" for each in room)]
    for index, (result, type, zero) in enumerate(zip(op.results, types, zeros, strict=True)):
        part = name if count == 1 else body.element(name, type, index)
        body.name_value(result, body.add("pad", result.type, [part, zero], cut))


_ZEROS = {"i1": "false", "complex": "(0, 0)"}


def _room(op: Op) -> list[int]:
    """Return by how many elements windows may extend beyond the operand along each dimension."""
    numbers = op["scatter_dimension_numbers"]
    absent = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    window = [dimension for dimension in range(op.operands[0].tensor.rank) if dimension not in absent]
    sizes = dict(zip(window, (bound_shape(op.operands[-1].tensor)[d] or 0 for d in numbers.update_window_dims),
                     strict=True))  # fmt: skip
    counted = numbers.scatter_dims_to_operand_dims
    return [max(sizes.get(d, 1) - 1, 0) if d in counted else 0 for d in range(op.operands[0].tensor.rank)]


def _wider(type: t.TensorType, room: Sequence[int]) -> t.TensorType:
    shape = tuple((size or 0) + 2 * each for size, each in zip(bound_shape(type), room, strict=True))
    return with_bounds(t.TensorType(shape, type.element_type), [size is None for size in type.shape])


def _shifted(body: Body, op: Op, room: Sequence[int]) -> str:
    """Return the indices as 64-bit integers, moved on by `room`; those beyond the operand stay beyond it."""
    numbers, indices = op["scatter_dimension_numbers"], op.operands[len(op.results)]
    mapped, kind = numbers.scatter_dims_to_operand_dims, indices.tensor
    name = body.name_of(indices)
    if kind.element_type is t.UI64:  # the largest would be negative
        most = [bound_shape(op.operands[0].tensor)[dimension] or 0 for dimension in mapped]
        name = body.add("minimum", kind, [name, _along(body, kind, numbers.index_vector_dim, most)])
    wide = kind.with_element_type(t.I64)
    if kind.element_type is not t.I64:
        name = body.add("convert", wide, [name])
    shift = _along(body, wide, numbers.index_vector_dim, [room[dimension] for dimension in mapped])
    return body.add("add", wide, [name, shift])


def _along(body: Body, type: t.TensorType, dimension: int, values: Sequence[int]) -> str:
    """Write `values` along `dimension` of an array of `type`; a scalar where there is no such dimension."""
    implicit = dimension == type.rank
    shape = t.TensorType(() if implicit else (len(values),), type.element_type)
    text = str(values[0]) if implicit else integers(values)
    constant = body.add("constant", shape, [text])
    full = t.TensorType(bound_shape(type), type.element_type)
    return body.add("broadcast", full, [constant], ["dimensions=" + integers(() if implicit else (dimension,))])


# --- contraction and linear algebra ----------------------------------------------------------------------------------


def _precision(op: Op) -> list[str]:
    names = op["precision_config"] or ()
    names = names * 2 if len(names) == 1 else names  # one for both
    return ["operand_precision={" + ",".join(map(str.lower, names)) + "}"] if names else []


@converts("stablehlo.dot_general")
def _dot_general(body: Body, op: Op) -> None:
    numbers = op["dot_dimension_numbers"]
    names = [("contracting", "contracting"), *([("batching", "batch")] if numbers.lhs_batching_dimensions else [])]
    dims = [
        f"{side}_{short}_dims={integers(getattr(numbers, f'{side}_{long}_dimensions'))}"
        for long, short in names
        for side in ("lhs", "rhs")
    ]
    algorithm = [f"algorithm={algorithm_text(op['algorithm'])}"] if op["algorithm"] is not None else []
    body.instruction(op, "dot", op.operands, [*dims, *_precision(op), *algorithm])


@converts("chlo.ragged_dot")
def _ragged_dot(body: Body, op: Op) -> None:
    numbers = op["ragged_dot_dimension_numbers"]
    fields = ("contracting", "contracting"), ("batching", "batch")
    dims = [
        f"{side}_{short}_dims={integers(getattr(numbers, f'{side}_{long}_dimensions'))}"
        for long, short in fields
        for side in ("lhs", "rhs")
        if long == "contracting" or numbers.lhs_batching_dimensions
    ]
    dims += [f"lhs_ragged_dims={integers(numbers.lhs_ragged_dimensions)}"]
    dims += [f"rhs_group_dims={integers(numbers.rhs_group_dimensions)}"] if numbers.rhs_group_dimensions else []
    body.instruction(op, "ragged-dot", op.operands, [*dims, *_precision(op)])


@converts("stablehlo.dot")
def _dot(body: Body, op: Op) -> None:
    left = op.operands[0].tensor.rank - 1
    dims = [f"lhs_contracting_dims={{{left}}}", "rhs_contracting_dims={0}"]
    body.instruction(op, "dot", op.operands, [*dims, *_precision(op)])


@converts("stablehlo.convolution")
def _convolution(body: Body, op: Op) -> None:
    numbers = op["dimension_numbers"]
    kernel = op.operands[1].tensor.shape
    window = window_text(
        [kernel[number] for number in numbers.kernel_spatial_dimensions],
        op["window_strides"],
        op["padding"],
        op["lhs_dilation"],
        op["rhs_dilation"],
        op["window_reversal"],
    )
    counts = [f"{name}={op[name]}" for name in ("feature_group_count", "batch_group_count") if op[name] != 1]
    body.instruction(op, "convolution", op.operands, [window, _labels(numbers), *counts, *_precision(op)])


def _labels(numbers: object) -> str:
    def place(first: tuple[str, int], second: tuple[str, int], space: Sequence[int]) -> str:
        named = {number: str(index) for index, number in enumerate(space)}
        named |= {number: letter for letter, number in (first, second)}
        return "".join(named[number] for number in sorted(named))

    sides = [
        place(
            (one, getattr(numbers, first)),
            (two, getattr(numbers, second)),
            getattr(numbers, f"{side}_spatial_dimensions"),
        )
        for side, one, first, two, second in (
            ("input", "b", "input_batch_dimension", "f", "input_feature_dimension"),
            ("kernel", "o", "kernel_output_feature_dimension", "i", "kernel_input_feature_dimension"),
            ("output", "b", "output_batch_dimension", "f", "output_feature_dimension"),
        )
    ]
    return f"dim_labels={sides[0]}_{sides[1]}->{sides[2]}"


def window_text(
    size: Sequence[int],
    strides: Sequence[int] | None,
    padding: Any,
    base: Sequence[int] | None,
    spread: Sequence[int] | None,
    reversal: Sequence[bool] | None = None,
) -> str:
    """Return `window={size=2x2 stride=2x2}`; what has its default is omitted."""
    fields = ["size=" + "x".join(map(str, size))] if len(size) else []
    fields += _field("stride", strides)
    if padding is not None and padding.any():
        fields.append("pad=" + "x".join(f"{low}_{high}" for low, high in padding.tolist()))
    fields += _field("lhs_dilate", base) + _field("rhs_dilate", spread)
    if reversal is not None and any(reversal):
        fields.append("rhs_reversal=" + "x".join(str(int(flag)) for flag in reversal))
    return "window={" + " ".join(fields) + "}"


def _field(name: str, values: Sequence[int] | None) -> list[str]:
    ones = values is None or all(value == 1 for value in values)
    return [] if ones else [f"{name}=" + "x".join(map(str, values or ()))]


@converts("stablehlo.fft")
def _fft(body: Body, op: Op) -> None:
    attributes = [f"fft_type={op['fft_type']}", "fft_length=" + integers(op["fft_length"])]
    body.instruction(op, "fft", op.operands, attributes)


@converts("stablehlo.cholesky")
def _cholesky(body: Body, op: Op) -> None:
    body.instruction(op, "cholesky", op.operands, _flags(op, "lower"))


@converts("stablehlo.triangular_solve")
def _triangular_solve(body: Body, op: Op) -> None:
    flags = _flags(op, "left_side", "lower", "unit_diagonal")
    body.instruction(op, "triangular-solve", op.operands, [*flags, f"transpose_a={op['transpose_a']}"])


@converts("stablehlo.batch_norm_training", "stablehlo.batch_norm_inference", "stablehlo.batch_norm_grad")
def _batch_norm(body: Body, op: Op) -> None:
    opcode = op.name.partition(".")[2].replace("_", "-")
    attributes = [f"epsilon={op['epsilon']!r}", f"feature_index={op['feature_index']}"]
    body.instruction(op, opcode, op.operands, attributes)


# --- random ----------------------------------------------------------------------------------------------------------


@converts("stablehlo.rng")
def _rng(body: Body, op: Op) -> None:
    body.instruction(op, "rng", op.operands[:2], [f"distribution=rng_{op['rng_distribution'].lower()}"])


@converts("stablehlo.rng_bit_generator")
def _rng_bit_generator(body: Body, op: Op) -> None:
    body.instruction(op, "rng-bit-generator", op.operands, [f"algorithm=rng_{op['rng_algorithm'].lower()}"])
