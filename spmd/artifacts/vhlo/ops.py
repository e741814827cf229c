"""VHLO's ops: one row per version of an op, with its inherent attributes and the VHLO versions that have it.

Source: openxla/stablehlo, VhloOps. The columns are name, first version, last version (`-` if current), and attributes;
a name with `*` is variadic in this version and takes one operand in the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmd.artifacts.encodings.fields import Version

#: The supported versions. 1.21 and 1.22 (jaxlib 0.12) have the ops, attributes and types of 1.20.
OLDEST: Version = (0, 9)
CURRENT: Version = (1, 22)

_CONV = (
    "lhs_dilation rhs_dilation window_strides window_reversal input_batch_dimension input_feature_dimension "
    "input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension "
    "kernel_spatial_dimensions output_batch_dimension output_feature_dimension output_spatial_dimensions "
    "feature_group_count batch_group_count precision_config"
)
_GATHER = "offset_dims collapsed_slice_dims start_index_map index_vector_dim indices_are_sorted"
_GATHER_BATCHING = "operand_batching_dims start_indices_batching_dims"
_SCATTER = (
    "update_window_dims inserted_window_dims scatter_dims_to_operand_dims index_vector_dim indices_are_sorted "
    "unique_indices"
)
_DOT = (
    "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions "
    "precision_config"
)
_ALGORITHM = (
    "lhs_precision_type rhs_precision_type accumulation_type lhs_component_count rhs_component_count "
    "num_primitive_operations allow_imprecise_accumulation"
)
_CUSTOM_CALL = (
    "call_target_name has_side_effect backend_config api_version called_computations operand_layouts result_layouts "
    "output_operand_aliases"
)
_COMPOSITE = "name composite_attributes decomposition version"

#: Ops without attributes that exist unchanged since the first version.
_PLAIN = """
abs add after_all and atan2 bitcast_convert case ceil clamp count_leading_zeros complex convert create_token divide
dynamic_pad dynamic_reshape dynamic_update_slice floor if imag is_finite maximum minimum multiply negate not
optimization_barrier or partition_id popcnt power real real_dynamic_slice remainder replica_id reshape return
round_nearest_even round_nearest_afz select shift_left shift_right_arithmetic shift_right_logical sign subtract tuple
uniform_dequantize uniform_quantize while xor
"""

#: Functions with a result_accuracy attribute since version 1.10, exponential since 1.9.
_ACCURATE = """
cbrt cosine exponential_minus_one log_plus_one logistic log rsqrt sine sqrt tan tanh
"""

_ROWS = f"""
all_gather_v1 0.9 1.4 all_gather_dim replica_groups channel_id use_global_device_ids
all_gather_v2* 1.5 - all_gather_dim replica_groups channel_id use_global_device_ids
all_reduce_v1 0.9 1.4 replica_groups channel_id use_global_device_ids
all_reduce_v2* 1.5 - replica_groups channel_id use_global_device_ids
all_to_all_v1 0.9 1.4 split_dimension concat_dimension split_count replica_groups channel_id
all_to_all_v2* 1.5 - split_dimension concat_dimension split_count replica_groups channel_id
async_start_v1 1.15 -
async_done_v1 1.15 -
batch_norm_grad_v1 0.9 - epsilon feature_index
batch_norm_inference_v1 0.9 - epsilon feature_index
batch_norm_training_v1 0.9 - epsilon feature_index
broadcast_in_dim_v1 0.9 - broadcast_dimensions
broadcast_v1 0.9 - broadcast_sizes
call_v1 0.9 - callee
cholesky_v1 0.9 - lower
collective_broadcast_v1 0.16 1.19 replica_groups channel_id
collective_broadcast_v2* 1.20 - replica_groups channel_id has_dynamic_root
collective_reduce_v1 1.19 - replica_groups channel_id use_global_device_ids has_dynamic_root
collective_permute_v1 0.9 - source_target_pairs channel_id
compare_v1 0.9 - comparison_direction compare_type
composite_v1 0.19 1.13 {_COMPOSITE}
composite_v2 1.14 - {_COMPOSITE}
concatenate_v1 0.9 - dimension
constant_v1 0.9 - value
convolution_v1 0.9 - {_CONV} padding
cross-replica-sum_v1 0.9 - replica_groups
custom_call_v1 0.9 1.17 {_CUSTOM_CALL}
custom_call_v2 1.18 - {_CUSTOM_CALL} result_tilings
dot_general_v1 0.9 1.5 {_DOT}
dot_general_v2 1.6 - {_DOT} {_ALGORITHM}
dot_v1 0.9 - precision_config
dynamic_broadcast_in_dim_v1 0.9 - broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions
dynamic_conv_v1 0.9 0.19 {_CONV} padding
dynamic_conv_v2 0.20 - {_CONV}
dynamic_gather_v1 0.9 1.0 {_GATHER}
dynamic_gather_v2 1.1 - {_GATHER} {_GATHER_BATCHING}
dynamic_iota_v1 0.9 - iota_dimension
dynamic_slice_v1 0.9 - slice_sizes
einsum_v1 0.9 - einsum_config
exponential_v1 0.9 1.8
exponential_v2 1.9 - result_accuracy
fft_v1 0.9 - fft_type fft_length
func_v1 0.9 - sym_name function_type sym_visibility arg_attrs res_attrs
gather_v1 0.9 1.0 {_GATHER} slice_sizes
gather_v2 1.1 - {_GATHER} {_GATHER_BATCHING} slice_sizes
get_dimension_size_v1 0.9 - dimension
get_tuple_element_v1 0.9 - index
infeed_v1 0.9 - infeed_config layout
iota_v1 0.9 - iota_dimension
map_v1 0.9 - dimensions
outfeed_v1 0.9 - outfeed_config
pad_v1 0.9 - edge_padding_low edge_padding_high interior_padding
recv_v1 0.9 1.11 channel_id channel_type is_host_transfer
recv_v2 1.12 - channel_id channel_type is_host_transfer source_target_pairs
reduce_v1 0.9 - dimensions
reduce_precision_v1 0.9 - exponent_bits mantissa_bits
reduce_scatter_v1 0.9 - scatter_dimension replica_groups channel_id use_global_device_ids
reduce_window_v1 0.9 - window_dimensions window_strides base_dilations window_dilations padding
reverse_v1 0.9 - dimensions
rng_bit_generator_v1 0.9 - rng_algorithm
rng_v1 0.9 - rng_distribution
scatter_v1 0.9 1.0 {_SCATTER}
scatter_v2 1.1 - {_SCATTER} input_batching_dims scatter_indices_batching_dims
select_and_scatter_v1 0.9 - window_dimensions window_strides padding
send_v1 0.9 1.11 channel_id channel_type is_host_transfer
send_v2 1.12 - channel_id channel_type is_host_transfer source_target_pairs
set_dimension_size_v1 0.9 - dimension
slice_v1 0.9 - start_indices limit_indices strides
sort_v1 0.9 - dimension is_stable
torch_index_select_v1 0.9 - dim batch_dims
transpose_v1 0.9 - permutation
triangular_solve_v1 0.9 - left_side lower unit_diagonal transpose_a
unary_einsum_v1 0.9 - einsum_config
"""


@dataclass(frozen=True)
class VhloOp:
    """One version of an op. `base` is its name without the version; `attributes` are in the order of properties."""

    name: str
    since: Version
    until: Version | None
    attributes: tuple[str, ...]
    widened: bool = False

    @property
    def base(self) -> str:
        return self.name.rpartition("_v")[0]

    def is_in(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


def parse_version(text: str) -> Version:
    """Return the version `1.20`, or `1.20.3`, whose patch number is ignored."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _rows() -> list[VhloOp]:
    rows = [VhloOp(f"{name}_v1", OLDEST, None, ()) for name in _PLAIN.split()]
    for name in _ACCURATE.split():
        since = (1, 4) if name == "tan" else OLDEST
        rows.append(VhloOp(f"{name}_v1", since, (1, 9), ()))
        rows.append(VhloOp(f"{name}_v2", (1, 10), None, ("result_accuracy",)))
    for line in _ROWS.strip().splitlines():
        name, first, until, *attributes = line.split()
        last = None if until == "-" else parse_version(until)
        rows.append(VhloOp(name.rstrip("*"), parse_version(first), last, tuple(sorted(attributes)), name[-1] == "*"))
    return rows


#: All versions of all ops, by full name.
VHLO_OPS: dict[str, VhloOp] = {f"vhlo.{row.name}": row for row in _rows()}

#: The versions of each op, newest first, by name without version.
BY_BASE: dict[str, list[VhloOp]] = {}
for _row in VHLO_OPS.values():
    BY_BASE.setdefault(_row.base, []).insert(0, _row)

#: VHLO's ops for other dialects than StableHLO, by VHLO's name.
OTHERS = {"func": "func.func", "call": "func.call"}


def name_of(row: VhloOp, in_function: bool) -> str:
    """Return the name of the op that `row` represents; a return is named after the function or region it ends."""
    if row.base == "return":
        return "func.return" if in_function else "stablehlo.return"
    return OTHERS.get(row.base) or f"stablehlo.{row.base}"


def base_of(name: str) -> str | None:
    """Return VHLO's name, without version, for an op; None if it has none."""
    dialect, _, rest = name.partition(".")
    if dialect == "stablehlo" and rest in BY_BASE and rest not in OTHERS:
        return rest
    return rest if dialect == "func" and rest in ("func", "call", "return") else None
