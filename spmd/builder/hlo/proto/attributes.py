"""The attributes of HloInstructionProto as HLO text spells them. Source: openxla/xla, hlo.proto and xla_data.proto."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spmd.builder.hlo.aliases import alias_text
from spmd.builder.hlo.convert import window_text
from spmd.builder.hlo.printer import integers
from spmd.builder.hlo.proto.literals import shape
from spmd.builder.hlo.proto.shardings import groups_text, sharding_text
from spmd.support.arrays import Array
from spmd.support.protobuf import Message

#: Numbers that stand in the text as they are, by field.
_NUMBERS = {26: "channel_id", 66: "delta", 81: "k"}
_COUNTS = {50: "feature_group_count", 58: "batch_group_count"}
_FLAGS = {
    47: "is_host_transfer", 60: "is_stable", 65: "custom_call_has_side_effect", 67: "indices_are_sorted",
    69: "unique_indices", 71: "use_global_device_ids", 85: "largest", 89: "is_composite", 94: "is_reverse",
}  # fmt: skip
_LISTS = {20: "dynamic_slice_sizes", 32: "fft_length", 34: "slice_sizes"}
_WORDS = {11: "kind", 63: "direction", 72: "type", 102: "order"}
_STRINGS = {22: "outfeed_config", 27: "infeed_config", 28: "custom_call_target", 79: "async_execution_thread"}
#: Fields that an opcode always has, 0 where the message has none.
_ALWAYS = {
    "get-tuple-element": {13: "index"}, "reduce-precision": {18: "exponent_bits", 19: "mantissa_bits"},
    "batch-norm-training": {25: "feature_index"}, "batch-norm-inference": {25: "feature_index"},
    "batch-norm-grad": {25: "feature_index"}, "scan": {95: "num_carries"},
}  # fmt: skip
#: Opcodes with dimensions.
_DIMENSIONS = frozenset((
    "all-gather", "all-to-all", "broadcast", "concatenate", "get-dimension-size", "map", "reduce", "reduce-scatter",
    "reverse", "scan", "set-dimension-size", "sort", "transpose",
))  # fmt: skip
#: Fields that are dimension numbers, each with the names of its fields.
_NUMBERED = {
    30: {1: "lhs_contracting_dims", 2: "rhs_contracting_dims", 3: "lhs_batch_dims", 4: "rhs_batch_dims"},
    33: {
        1: "offset_dims", 2: "collapsed_slice_dims", 3: "start_index_map", 5: "operand_batching_dims",
        6: "start_indices_batching_dims",
    },
    48: {
        1: "update_window_dims", 2: "inserted_window_dims", 3: "scatter_dims_to_operand_dims",
        5: "input_batching_dims", 6: "scatter_indices_batching_dims",
    },
}  # fmt: skip
_FFT = ("FFT", "IFFT", "RFFT", "IRFFT")
_PRECISIONS = ("default", "high", "highest")
_ALGORITHMS = (
    "unset", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16", "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64", "dot_bf16_bf16_f32_x9",
)  # fmt: skip
_RANDOM = ("rng_default", "rng_three_fry", "rng_philox")
_TRANSPOSES = ("NO_TRANSPOSE", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
_VERSIONS = {2: "STATUS_RETURNING", 3: "STATUS_RETURNING_UNIFIED", 4: "TYPED_FFI"}
_TYPED = 4
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def quoted(text: str) -> str:
    """Return a string of HLO text."""
    return f'"{text.translate(_ESCAPES)}"'


def attributes(proto: Message) -> Iterator[str]:
    """Yield `name=value` for all that an instruction says of itself, but for the computations that it calls."""
    opcode = proto.text(2)
    yield from _plain(proto, opcode.removesuffix("-start"))
    yield from _dimension_numbers(proto)
    yield from _linear_algebra(proto, opcode)
    yield from _random(proto, opcode)
    yield from _processes(proto)
    if opcode == "custom-call":
        yield from _custom_call(proto)
    if 17 in proto:
        ranges = (f"[{each.number(1)}:{each.number(2)}:{each.number(3)}]" for each in proto.messages(17))
        yield f"slice={{{', '.join(ranges)}}}"
    if opcode == "pad":
        edges = ("_".join(str(each.number(field)) for field in (1, 2, 3)) for each in proto.message(21).messages(1))
        yield f"padding={'x'.join(edges)}"
    if opcode == "outfeed":
        yield f"outfeed_shape={shape(proto.message(29))}"
    if 68 in proto:
        yield frontend(proto.message(68))
    if 7 in proto:
        yield f"metadata={{{' '.join(_metadata(proto.message(7)))}}}"


def _plain(proto: Message, opcode: str) -> Iterator[str]:
    yield from (f"{name}={proto.number(field)}" for field, name in _NUMBERS.items() if proto.number(field))
    yield from (f"{name}={proto.number(field)}" for field, name in _COUNTS.items() if proto.number(field) > 1)
    yield from (f"{name}=true" for field, name in _FLAGS.items() if proto.number(field))
    yield from (f"{name}={integers(proto.numbers(field))}" for field, name in _LISTS.items() if field in proto)
    yield from (f"{name}={proto.text(field)}" for field, name in _WORDS.items() if field in proto)
    yield from (f"{name}={quoted(proto.text(field))}" for field, name in _STRINGS.items() if field in proto)
    yield from (f"{name}={proto.number(field)}" for field, name in _ALWAYS.get(opcode, {}).items())
    dimensions = proto.numbers(14)
    if opcode == "iota":
        yield f"iota_dimension={dimensions[0] if dimensions else 0}"
    elif opcode == "reshape" and dimensions:
        yield f"inferred_dimension={dimensions[0]}"
    elif opcode in _DIMENSIONS and (dimensions or opcode != "all-to-all"):
        yield f"dimensions={integers(dimensions)}"
    if opcode == "dynamic-slice" and 20 not in proto:
        yield "dynamic_slice_sizes={}"
    if opcode == "gather" and 34 not in proto:
        yield "slice_sizes={}"
    if 96 in proto:
        yield f"is_associative={'true' if proto.number(96) == 1 else 'false'}"


def _dimension_numbers(proto: Message) -> Iterator[str]:
    for field, names in _NUMBERED.items():
        if field in proto:
            numbers = proto.message(field)
            yield from (f"{name}={integers(numbers.numbers(at))}" for at, name in names.items())
            yield from [f"index_vector_dim={numbers.number(4)}"] if field != 30 else []
    if 90 in proto:
        ragged = proto.message(90)
        numbers = ragged.message(1)
        yield from (f"{name}={integers(numbers.numbers(at))}" for at, name in _NUMBERED[30].items())
        yield f"lhs_ragged_dims={integers(ragged.numbers(2))}"
        yield f"rhs_group_dims={integers(ragged.numbers(3))}"
    if 15 in proto:
        yield _window(proto.message(15))
    if 16 in proto:
        yield f"dim_labels={_labels(proto.message(16))}"


def _window(window: Message) -> str:
    dimensions = window.messages(1)
    size, stride, low, high, spread, base, reverse = ([each.number(at) for each in dimensions] for at in range(1, 8))
    padding: Array = np.array([low, high], np.int64).T
    return window_text(size, stride, padding, [each or 1 for each in base], [each or 1 for each in spread],
                       [bool(each) for each in reverse])  # fmt: skip


def _labels(numbers: Message) -> str:
    """Return `b01f_01io->b01f`: which dimension is the batch, the feature, and which are spatial."""
    sides = (("b", 7, "f", 8, 11), ("i", 3, "o", 4, 6), ("b", 9, "f", 10, 12))
    texts = []
    for first, one, second, two, spatial in sides:
        places = {numbers.number(one): first, numbers.number(two): second}
        places |= {place: str(index) for index, place in enumerate(numbers.numbers(spatial))}
        texts.append("".join(places[place] for place in sorted(places)))
    return f"{texts[0]}_{texts[1]}->{texts[2]}"


def _linear_algebra(proto: Message, opcode: str) -> Iterator[str]:
    if 51 in proto:
        precision = proto.message(51)
        if any(precision.numbers(1)):
            yield f"operand_precision={{{','.join(_PRECISIONS[each] for each in precision.numbers(1))}}}"
        if precision.number(2):
            yield f"algorithm={_ALGORITHMS[precision.number(2)]}"
    if opcode == "fft":
        yield f"fft_type={_FFT[proto.number(31)]}"
        yield from ["fft_length={}"] if 32 not in proto else []
    if opcode == "cholesky":
        yield from ["lower=true"] if proto.message(62).number(1) else []
    if opcode == "triangular-solve":
        options = proto.message(59)
        names = {1: "left_side", 2: "lower", 3: "unit_diagonal"}
        yield from (f"{name}=true" for field, name in names.items() if options.number(field))
        yield f"transpose_a={_TRANSPOSES[options.number(4)]}"
    if opcode.startswith("batch-norm"):
        yield f"epsilon={proto.single(24)!r}"


def _random(proto: Message, opcode: str) -> Iterator[str]:
    if opcode == "rng":
        yield f"distribution={'rng_normal' if proto.number(23) == 2 else 'rng_uniform'}"
    if opcode == "rng-bit-generator":
        yield f"algorithm={_RANDOM[proto.number(70)]}"


def _processes(proto: Message) -> Iterator[str]:
    """Yield how values are laid out over devices, which of them meet, and who sends to whom."""
    if 40 in proto:
        yield f"sharding={sharding_text(proto.message(40))}"
    if proto.number(71) and not proto.number(26):  # a message has no other way to say channel 0
        yield "channel_id=0"
    groups = groups_text(proto)
    if groups is not None:
        yield f"replica_groups={groups}"
    if 52 in proto:
        pairs = (integers([pair.number(1), pair.number(2)]) for pair in proto.messages(52))
        yield f"source_target_pairs={{{','.join(pairs)}}}"


def _custom_call(proto: Message) -> Iterator[str]:
    version = proto.number(77)
    if version in _VERSIONS:
        yield f"api_version=API_VERSION_{_VERSIONS[version]}"
    config = proto.text(43)
    if config:
        yield f"backend_config={config if version == _TYPED and config.startswith('{') else quoted(config)}"
    if proto.number(56):
        yield f"operand_layout_constraints={{{', '.join(str(shape(each)) for each in proto.messages(57))}}}"
    aliases = [
        alias_text((tuple(each.numbers(1)), (each.number(2), tuple(each.numbers(3))))) for each in proto.messages(74)
    ]
    if aliases:
        yield f"output_to_operand_aliasing={{{', '.join(aliases)}}}"


def frontend(proto: Message) -> str:
    """Return the attributes that a frontend gave."""
    return f"frontend_attributes={{{','.join(f'{each.text(1)}={quoted(each.text(2))}' for each in proto.messages(1))}}}"


def _metadata(proto: Message) -> Iterator[str]:
    for field, name in ((1, "op_type"), (2, "op_name"), (3, "source_file")):
        if field in proto:
            yield f"{name}={quoted(proto.text(field))}"
    for field, name in ((4, "source_line"), (18, "source_column"), (15, "stack_frame_id")):
        if proto.number(field):
            yield f"{name}={proto.number(field)}"
