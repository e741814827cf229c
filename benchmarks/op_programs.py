"""One small program per op, over a million elements, in MLIR's generic form."""

ELEMENTS = 1_000_000
SIDE = 1000
VECTOR, MATRIX = f"{ELEMENTS}x", f"{SIDE}x{SIDE}x"
F32, I32, I1, C64 = (f"tensor<{MATRIX}{element}>" for element in ("f32", "i32", "i1", "complex<f32>"))
SCALAR, INDEX = "tensor<f32>", "tensor<i32>"

#: Ops without a program here, and the reason.
WITHOUT = {
    f"stablehlo.{name}": reason
    for reason, names in {
        "measured with ranks": "all_gather all_reduce all_to_all reduce_scatter collective_broadcast collective_reduce "
        "collective_permute cross-replica-sum async_start async_done send recv infeed outfeed replica_id partition_id",
        "control, not computation": "if case while return optimization_barrier after_all create_token tuple "
        "get_tuple_element composite custom_call constant get_dimension_size set_dimension_size cstr_reshapable "
        "compute_reshape_shape",
    }.items()
    for name in names.split()
} | {"chlo.constant": "a constant", "chlo._asin_acos_kernel": "inside asin and acos", "chlo.scan": "control"}

_UNARY = {
    F32: "abs cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan tanh ceil "
    "floor round_nearest_afz round_nearest_even negate sign",
    I32: "count_leading_zeros popcnt not",
}
_BINARY = {
    F32: "add subtract multiply divide maximum minimum power remainder atan2",
    I32: "and or xor shift_left shift_right_arithmetic shift_right_logical",
}
_CHLO_UNARY = "acos acosh asin asinh atan atanh bessel_i1e cosh sinh square tan digamma erf erf_inv erfc lgamma"
_CHLO_BROADCAST = {
    F32: "add maximum minimum multiply atan2 divide next_after polygamma power remainder subtract zeta",
    I32: "shift_left shift_right_arithmetic shift_right_logical and or xor",
}


def program(
    op: str, operands: list[str], result: str, attributes: str = "", regions: str = "", before: str = ""
) -> str:
    """Return a function that applies ``op`` to its arguments; ``%c0`` and on come from ``before``, as operands, too."""
    constants = [line.split(" = ")[0].strip() for line in before.splitlines() if " = " in line]
    own = len(operands) - len(constants)
    arguments = ", ".join(f"%a{index}: {type}" for index, type in enumerate(operands[:own]))
    names = ", ".join([f"%a{index}" for index in range(own)] + constants)
    many = result.startswith("(")
    count = f":{result.count('tensor')}" if many else ""
    results = ", ".join(f"%r#{index}" for index in range(result.count("tensor"))) if many else "%r"
    returned = result.strip("()")
    return f"""
func.func @main({arguments}) -> {result} {{
{before}
  %r{count} = "{op}"({names}) <{{{attributes}}}> {regions} : ({", ".join(operands)}) -> {result}
  return {results} : {returned}
}}
"""


def constant(name: str, value: str, type: str) -> str:
    return f'  {name} = "stablehlo.constant"() <{{value = dense<{value}> : {type}}}> : () -> {type}\n'


def region(op: str, types: list[str]) -> str:
    """Return a region that folds pairs with ``op``: accumulators first, then elements."""
    half = len(types) // 2
    arguments = ", ".join(f"%x{index}: {type}" for index, type in enumerate(types))
    lines = "".join(f"%y{i} = stablehlo.{op} %x{i}, %x{i + half} : {types[i]}\n" for i in range(half))
    values, returned = ", ".join(f"%y{i}" for i in range(half)), ", ".join(types[:half])
    return f"({{ ^bb0({arguments}):\n{lines}stablehlo.return {values} : {returned} }})"


def programs() -> dict[str, str]:
    """Return the text of a program for each op that computes."""
    return _elementwise() | _chlo() | _moved() | _indexed() | _reduced() | _contracted() | _dynamic() | _others()


def _elementwise() -> dict[str, str]:
    by_name = {f"stablehlo.{name}": (1, type, type) for type, names in _UNARY.items() for name in names.split()}
    by_name |= {f"stablehlo.{name}": (2, type, type) for type, names in _BINARY.items() for name in names.split()}
    by_name |= {"stablehlo.convert": (1, F32, I32), "stablehlo.is_finite": (1, F32, I1)}
    by_name |= {"stablehlo.real": (1, C64, F32), "stablehlo.imag": (1, C64, F32), "stablehlo.complex": (2, F32, C64)}
    by_name |= {"stablehlo.bitcast_convert": (1, F32, I32)}
    texts = {op: program(op, [type] * count, result) for op, (count, type, result) in by_name.items()}
    direction = "comparison_direction = #stablehlo<comparison_direction LT>"
    return texts | {
        "stablehlo.compare": program("stablehlo.compare", [F32, F32], I1, direction),
        "stablehlo.select": program("stablehlo.select", [I1, F32, F32], F32),
        "stablehlo.clamp": program("stablehlo.clamp", [F32] * 3, F32),
        "stablehlo.reduce_precision": program(
            "stablehlo.reduce_precision", [F32], F32, "exponent_bits = 5 : i32, mantissa_bits = 10 : i32"
        ),
        "stablehlo.map": program(
            "stablehlo.map", [F32, F32], F32, "dimensions = array<i64: 0, 1>", region("multiply", [SCALAR] * 2)
        ),
    }


def _chlo() -> dict[str, str]:
    texts = {f"chlo.{name}": program(f"chlo.{name}", [F32], F32) for name in _CHLO_UNARY.split()}
    texts["chlo.constant_like"] = program("chlo.constant_like", [F32], F32, "value = 2.0 : f32")
    texts |= {f"chlo.{name}": program(f"chlo.{name}", [F32], I1) for name in ("is_inf", "is_neg_inf", "is_pos_inf")}
    texts |= {f"chlo.{name}": program(f"chlo.{name}", [F32, F32], F32) for name in ("next_after", "polygamma", "zeta")}
    for type, names in _CHLO_BROADCAST.items():
        texts |= {
            f"chlo.broadcast_{name}": program(f"chlo.broadcast_{name}", [type] * 2, type) for name in names.split()
        }
    vector = f"tensor<{VECTOR}f32>"
    top = "(tensor<10xf32>, tensor<10xi32>)"
    return texts | {
        "chlo.conj": program("chlo.conj", [C64], C64),
        "chlo.mulhi": program("chlo.mulhi", [I32, I32], I32),
        "chlo.broadcast_complex": program("chlo.broadcast_complex", [F32, F32], C64),
        "chlo.broadcast_compare": program(
            "chlo.broadcast_compare", [F32, F32], I1, "comparison_direction = #chlo<comparison_direction LT>"
        ),
        "chlo.broadcast_select": program("chlo.broadcast_select", [I1, F32, F32], F32),
        "chlo.top_k": program("chlo.top_k", [vector], top, "k = 10 : i64"),
        "chlo.ragged_dot": program(
            "chlo.ragged_dot",
            [F32, f"tensor<4x{MATRIX}f32>", "tensor<4xi64>"],
            F32,
            "ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], "
            "rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>",
            before=constant("%c0", "250", "tensor<4xi64>"),
        ),
    }


def _moved() -> dict[str, str]:
    vector, double = f"tensor<{VECTOR}f32>", f"tensor<{SIDE}x{2 * SIDE}xf32>"
    padding = "edge_padding_high = array<i64: 2, 2>, edge_padding_low = array<i64: 2, 2>, "
    limits = "limit_indices = array<i64: 1000, 2000>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 2>"
    return {
        "stablehlo.iota": program("stablehlo.iota", [], I32, "iota_dimension = 1 : i64"),
        "stablehlo.broadcast": program(
            "stablehlo.broadcast", [f"tensor<{SIDE}xf32>"], F32, f"broadcast_sizes = array<i64: {SIDE}>"
        ),
        "stablehlo.broadcast_in_dim": program(
            "stablehlo.broadcast_in_dim", [f"tensor<{SIDE}xf32>"], F32, "broadcast_dimensions = array<i64: 0>"
        ),
        "stablehlo.concatenate": program("stablehlo.concatenate", [F32, F32], double, "dimension = 1 : i64"),
        "stablehlo.pad": program(
            "stablehlo.pad",
            [F32, SCALAR],
            "tensor<1004x1004xf32>",
            padding + "interior_padding = array<i64: 0, 0>",
        ),
        "stablehlo.reshape": program("stablehlo.reshape", [F32], vector),
        "stablehlo.reverse": program("stablehlo.reverse", [F32], F32, "dimensions = array<i64: 0, 1>"),
        "stablehlo.slice": program("stablehlo.slice", [double], F32, limits),
        "stablehlo.transpose": program("stablehlo.transpose", [F32], F32, "permutation = array<i64: 1, 0>"),
    }


def _indexed() -> dict[str, str]:
    rows = f"tensor<{SIDE}x1xi32>"
    gather = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>"
    )
    scatter = (
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    window = "window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>"
    greater = (
        "({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n %0 = stablehlo.compare GE, %x, %y : "
        "(tensor<f32>, tensor<f32>) -> tensor<i1>\n stablehlo.return %0 : tensor<i1> }, "
    )
    return {
        "stablehlo.dynamic_slice": program(
            "stablehlo.dynamic_slice",
            ["tensor<1100x1100xf32>", INDEX, INDEX],
            F32,
            "slice_sizes = array<i64: 1000, 1000>",
        ),
        "stablehlo.dynamic_update_slice": program(
            "stablehlo.dynamic_update_slice", ["tensor<1100x1100xf32>", F32, INDEX, INDEX], "tensor<1100x1100xf32>"
        ),
        "stablehlo.gather": program(
            "stablehlo.gather", [F32, rows], F32, f"{gather}, slice_sizes = array<i64: 1, {SIDE}>"
        ),
        "stablehlo.scatter": program("stablehlo.scatter", [F32, rows, F32], F32, scatter, region("add", [SCALAR] * 2)),
        "stablehlo.torch_index_select": program(
            "stablehlo.torch_index_select", [F32, f"tensor<{SIDE}xi32>"], F32, "batch_dims = 0 : i64, dim = 0 : i64"
        ),
        "stablehlo.select_and_scatter": program(
            "stablehlo.select_and_scatter",
            [F32, "tensor<500x500xf32>", SCALAR],
            F32,
            window,
            greater + region("add", [SCALAR] * 2).removeprefix("("),
        ),
    }


def _reduced() -> dict[str, str]:
    row = f"tensor<{SIDE}xf32>"
    window = "window_dimensions = array<i64: 3, 3>, padding = dense<1> : tensor<2x2xi64>"
    less = (
        "({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n %0 = stablehlo.compare LT, %x, %y : "
        "(tensor<f32>, tensor<f32>) -> tensor<i1>\n stablehlo.return %0 : tensor<i1> })"
    )
    zero = constant("%c0", "0.0", SCALAR)
    adds = region("add", [SCALAR] * 2)
    return {
        "stablehlo.reduce": program("stablehlo.reduce", [F32, SCALAR], row, "dimensions = array<i64: 1>", adds, zero),
        "stablehlo.reduce_window": program("stablehlo.reduce_window", [F32, SCALAR], F32, window, adds, zero),
        "stablehlo.sort": program("stablehlo.sort", [F32], F32, "dimension = 1 : i64, is_stable = false", less),
        "stablehlo.batch_norm_training": program(
            "stablehlo.batch_norm_training",
            [F32, row, row],
            f"({F32}, {row}, {row})",
            "epsilon = 0.001 : f32, feature_index = 1 : i64",
        ),
        "stablehlo.batch_norm_inference": program(
            "stablehlo.batch_norm_inference",
            [F32, row, row, row, row],
            F32,
            "epsilon = 0.001 : f32, feature_index = 1 : i64",
        ),
        "stablehlo.batch_norm_grad": program(
            "stablehlo.batch_norm_grad",
            [F32, row, row, row, F32],
            f"({F32}, {row}, {row})",
            "epsilon = 0.001 : f32, feature_index = 1 : i64",
        ),
    }


_CONVOLUTION = (
    "batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = "
    "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>"
)
_IMAGES, _FILTERS = "tensor<4x62x63x64xf32>", "tensor<3x3x64x64xf32>"


def _contracted() -> dict[str, str]:
    numbers = "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"
    padding = "padding = dense<1> : tensor<2x2xi64>"
    return {
        "stablehlo.dot": program("stablehlo.dot", [F32, F32], F32),
        "stablehlo.dot_general": program(
            "stablehlo.dot_general", [F32, F32], F32, f"dot_dimension_numbers = {numbers}"
        ),
        "stablehlo.einsum": program("stablehlo.einsum", [F32, F32], F32, 'einsum_config = "ij,jk->ik"'),
        "stablehlo.unary_einsum": program("stablehlo.unary_einsum", [F32], F32, 'einsum_config = "ij->ji"'),
        "stablehlo.convolution": program(
            "stablehlo.convolution", [_IMAGES, _FILTERS], _IMAGES, f"{_CONVOLUTION}, {padding}"
        ),
        "stablehlo.cholesky": _cholesky(),
        "stablehlo.triangular_solve": program(
            "stablehlo.triangular_solve",
            [F32, F32],
            F32,
            "left_side = true, lower = true, unit_diagonal = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>",
        ),
        "stablehlo.fft": program(
            "stablehlo.fft", [C64], C64, "fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 1000>"
        ),
    }


def _cholesky() -> str:
    """Return a Cholesky factorization of the identity; a random argument would not be positive definite."""
    return f"""
func.func @main() -> {F32} {{
  %i = stablehlo.iota dim = 0 : {I32}
  %j = stablehlo.iota dim = 1 : {I32}
  %e = stablehlo.compare EQ, %i, %j : ({I32}, {I32}) -> {I1}
  %a = stablehlo.convert %e : ({I1}) -> {F32}
  %b = stablehlo.optimization_barrier %a : {F32}
  %r = "stablehlo.cholesky"(%b) <{{lower = true}}> : ({F32}) -> {F32}
  return %r : {F32}
}}
"""


def _dynamic() -> dict[str, str]:
    shape, row = "tensor<2xi64>", f"tensor<{SIDE}xf32>"
    sizes = constant("%c0", "[1000, 1000]", shape)
    zeros, ones = constant("%c0", "0", shape), constant("%c2", "1", shape)
    two = constant("%c0", "2", shape) + constant("%c1", "2", shape) + constant("%c2", "0", shape)
    gather = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>"
    )
    return {
        "stablehlo.dynamic_broadcast_in_dim": program(
            "stablehlo.dynamic_broadcast_in_dim", [row, shape], F32, "broadcast_dimensions = array<i64: 0>", "", sizes
        ),
        "stablehlo.dynamic_iota": program(
            "stablehlo.dynamic_iota", [shape], I32, "iota_dimension = 1 : i64", "", sizes
        ),
        "stablehlo.dynamic_reshape": program(
            "stablehlo.dynamic_reshape", [f"tensor<{VECTOR}f32>", shape], F32, "", "", sizes
        ),
        "stablehlo.dynamic_pad": program(
            "stablehlo.dynamic_pad", [F32, SCALAR, shape, shape, shape], "tensor<1004x1004xf32>", "", "", two
        ),
        "stablehlo.real_dynamic_slice": program(
            "stablehlo.real_dynamic_slice",
            ["tensor<1100x1100xf32>", shape, shape, shape],
            F32,
            "",
            "",
            zeros + constant("%c1", "1000", shape) + ones,
        ),
        "stablehlo.dynamic_gather": program(
            "stablehlo.dynamic_gather",
            [F32, f"tensor<{SIDE}x1xi32>", shape],
            F32,
            gather,
            "",
            constant("%c0", f"[1, {SIDE}]", shape),
        ),
        "stablehlo.dynamic_conv": program(
            "stablehlo.dynamic_conv",
            [_IMAGES, _FILTERS, "tensor<2x2xi64>"],
            _IMAGES,
            _CONVOLUTION,
            "",
            constant("%c0", "1", "tensor<2x2xi64>"),
        ),
    }


def _others() -> dict[str, str]:
    quantized = f"tensor<{MATRIX}!quant.uniform<i8:f32, 0.05:3>>"
    bits = f"(tensor<2xui64>, tensor<{VECTOR}ui32>)"
    algorithm = "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>"
    low, high = constant("%c0", "0.0", SCALAR), constant("%c1", "1.0", SCALAR)
    return {
        "stablehlo.uniform_quantize": program("stablehlo.uniform_quantize", [F32], quantized),
        "stablehlo.uniform_dequantize": program("stablehlo.uniform_dequantize", [quantized], F32),
        "stablehlo.rng_bit_generator": program("stablehlo.rng_bit_generator", ["tensor<2xui64>"], bits, algorithm),
        "stablehlo.rng": program(
            "stablehlo.rng",
            [SCALAR, SCALAR, "tensor<2xi64>"],
            F32,
            "rng_distribution = #stablehlo<rng_distribution UNIFORM>",
            "",
            low + high + constant("%c2", "1000", "tensor<2xi64>"),
        ),
    }
