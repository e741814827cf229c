"""Cases of ops that multiply and add up."""

from __future__ import annotations

from tests.dialects.cases import OpCase

_NUMBERS = (
    "#stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [1], lhs_contracting_dimensions = [2], "
    "rhs_contracting_dimensions = [0]>"
)
_ALGORITHM = (
    "#stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, "
    "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, "
    "allow_imprecise_accumulation = false>"
)
_DOT = (
    f"{{dot_dimension_numbers = {_NUMBERS}, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision "
    f"DEFAULT>], algorithm = {_ALGORITHM}}} : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<2x3x5xf32>"
)
_Q = "!quant.uniform<i8:f32, 0.5>"
_QUANTIZED_DOT = (
    "{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} : "
    f"(tensor<3x4x{_Q}>, tensor<4x2x{_Q}>) -> tensor<3x2x{_Q}>"
)
_RHS = f", tensor<4x2x{_Q}>)"

_DIMENSIONS = (
    "#stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 3, input_spatial_dimensions = [1, 2], "
    "kernel_input_feature_dimension = 2, kernel_output_feature_dimension = 3, kernel_spatial_dimensions = [0, 1], "
    "output_batch_dimension = 0, output_feature_dimension = 3, output_spatial_dimensions = [1, 2]>"
)
_ARRAYS = (
    "window_strides = array<i64: 2, 1>, lhs_dilation = array<i64: 1, 2>, rhs_dilation = array<i64: 2, 1>, "
    "window_reversal = array<i1: false, true>, "
)
_COUNTS = (
    f"dimension_numbers = {_DIMENSIONS}, feature_group_count = 1 : i64, batch_group_count = 1 : i64, "
    "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]"
)
_QUANTIZED_COUNTS = f"dimension_numbers = {_DIMENSIONS}, feature_group_count = 1 : i64, batch_group_count = 1 : i64"


def _common(lhs: str, rhs: str, result: str) -> dict[str, tuple[str, str] | list[tuple[str, str]]]:
    """What breaks a convolution of these types, whether its padding is static or not."""
    return {
        "C1": (rhs, "tensor<3x2x4xf32>"),
        "C2": ("window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2>"),
        "C3": ("window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2, 0>"),
        "C5": ("lhs_dilation = array<i64: 1, 2>", "lhs_dilation = array<i64: 1>"),
        "C6": ("lhs_dilation = array<i64: 1, 2>", "lhs_dilation = array<i64: 1, 0>"),
        "C7": ("rhs_dilation = array<i64: 2, 1>", "rhs_dilation = array<i64: 2>"),
        "C8": ("rhs_dilation = array<i64: 2, 1>", "rhs_dilation = array<i64: 2, 0>"),
        "C9": ("array<i1: false, true>", "array<i1: false>"),
        "C10": [("batch_group_count = 1", "batch_group_count = 3")],
        "C11": [("feature_group_count = 1", "feature_group_count = 3")],
        "C12": ("input_spatial_dimensions = [1, 2]", "input_spatial_dimensions = [1]"),
        "C13": ("input_spatial_dimensions = [1, 2]", "input_spatial_dimensions = [1, 3]"),
        "C14": ("feature_group_count = 1", "feature_group_count = 2"),
        "C15": ("batch_group_count = 1", "batch_group_count = 4"),
        "C16": [(lhs, "tensor<4x9x8x20xf32>"), ("feature_group_count = 1", "feature_group_count = 5")],
        "C17": ("kernel_spatial_dimensions = [0, 1]", "kernel_spatial_dimensions = [0]"),
        "C18": ("kernel_spatial_dimensions = [0, 1]", "kernel_spatial_dimensions = [0, 2]"),
        "C19": ("output_spatial_dimensions = [1, 2]", "output_spatial_dimensions = [1]"),
        "C20": ("output_spatial_dimensions = [1, 2]", "output_spatial_dimensions = [1, 4]"),
        "C21": ("feature_group_count = 1", "feature_group_count = 0"),
        "C22": ("batch_group_count = 1", "batch_group_count = 0"),
        "C23": [
            ("feature_group_count = 1", "feature_group_count = 2"),
            ("batch_group_count = 1", "batch_group_count = 2"),
        ],
        "C24": ("precision HIGH>]", "precision HIGH>, #stablehlo<precision HIGH>]"),
        "C25": (f"-> {result}", "-> tensor<4x3x9x6xf32>"),
        "C26": (f"-> {result}", "-> tensor<4x3x14xf32>"),
        "C27": (rhs, rhs.replace("f32", "i32")),
    }


def _quantized(prefix: str, *, static: bool) -> list[tuple[str, dict[str, tuple[str, str]]]]:
    """Quantized convolutions: the body, and what breaks it."""
    lhs, rhs, result = f"tensor<4x9x8x4x{_Q}>", f"tensor<3x2x4x6x{_Q}>", f"tensor<4x7x7x6x{_Q}>"
    padding = "" if static else ", tensor<2x2xi64>"
    attributes = f"{{{prefix}{_QUANTIZED_COUNTS}}}"
    both = f"{attributes} : ({lhs}, {rhs}{padding}) -> {result}"
    weights = f"{attributes} : (tensor<4x9x8x4xf32>, {rhs}{padding}) -> tensor<4x7x7x6xf32>"
    scales = ", ".join(["0.5"] * 6)
    breaks = {
        "C28": (rhs, "tensor<3x2x4x6xf32>"),
        "C29": (rhs, "tensor<3x2x4x6x!quant.uniform<i8:f32:0, {0.5, 0.5, 0.5}>>"),
        "C30": (result, f"tensor<4x7x6x6x!quant.uniform<i8:f32:2, {{{scales}}}>>"),
        "C31": (rhs, "tensor<3x2x4x6x!quant.uniform<i16:f32, 0.5>>"),
        "C32": (rhs, "tensor<3x2x4x6x!quant.uniform<i8:f64, 0.5>>"),
        "C33": (result, f"tensor<4x7x7x6x!quant.uniform<i8:f32:3, {{{scales}}}>>"),
    }
    return [(both, breaks), (weights, {"C34": (rhs, "tensor<3x2x4x6x!quant.uniform<i8:f64, 0.5>>")})]


_LHS, _KERNEL, _OUT = "tensor<4x9x8x4xf32>", "tensor<3x2x4x6xf32>", "tensor<4x3x14x6xf32>"
_PADDING = "dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>"
_CONSTANT = f"%p = stablehlo.constant {_PADDING}"

CASES = [
    OpCase(
        "dot_general",
        _DOT,
        {
            "C1": ("lhs_batching_dimensions = [0]", "lhs_batching_dimensions = []"),
            "C2": ("lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = [1, 2]"),
            "C3": ("lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = [0]"),
            "C4": ("rhs_contracting_dimensions = [0]", "rhs_contracting_dimensions = [1]"),
            "C5": ("lhs_batching_dimensions = [0]", "lhs_batching_dimensions = [3]"),
            "C6": ("lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = [3]"),
            "C7": ("rhs_batching_dimensions = [1]", "rhs_batching_dimensions = [3]"),
            "C8": ("rhs_contracting_dimensions = [0]", "rhs_contracting_dimensions = [-1]"),
            "C9": ("lhs_batching_dimensions = [0]", "lhs_batching_dimensions = [1]"),
            "C10": ("tensor<4x2x5xf32>)", "tensor<3x2x5xf32>)"),
            "C11": ("precision DEFAULT>]", "precision DEFAULT>, #stablehlo<precision DEFAULT>]"),
            "C12": ("-> tensor<2x3x5xf32>", "-> tensor<2x5x3xf32>"),
            "C13": ("tensor<4x2x5xf32>)", "tensor<4x2x5xcomplex<f32>>)"),
            "C21": ("precision DEFAULT>]", "precision HIGH>]"),
            "C22": ("lhs_component_count = 1", "lhs_component_count = 0"),
            "C23": ("rhs_component_count = 1", "rhs_component_count = 0"),
            "C24": ("num_primitive_operations = 3", "num_primitive_operations = 0"),
        },
    ),
    OpCase(
        "dot_general",
        _QUANTIZED_DOT,
        {
            "C14": (_RHS, ", tensor<4x2xf32>)"),
            "C15": (_RHS, ", tensor<4x2x!quant.uniform<i8:f32, 0.5:3>>)"),
            "C16": (_RHS, ", tensor<4x2x!quant.uniform<i8:f32:0, {0.5, 0.5, 0.5, 0.5}>>)"),
            "C17": (_RHS, ", tensor<4x2x!quant.uniform<i16:f32, 0.5>>)"),
            "C18": (_RHS, ", tensor<4x2x!quant.uniform<i8:f64, 0.5>>)"),
            "C19": (f"-> tensor<3x2x{_Q}>", "-> tensor<3x2x!quant.uniform<i8:f32:1, {0.5, 0.5}>>"),
        },
    ),
    OpCase(
        "dot_general",
        "{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} "
        f": (tensor<3x4xf32>, tensor<4x2x{_Q}>) -> tensor<3x2xf32>",
        {"C20": (_RHS, ", tensor<4x2x!quant.uniform<i8:f64, 0.5>>)")},
    ),
    OpCase(
        "convolution",
        f"{{padding = {_PADDING}, {_ARRAYS}{_COUNTS}}} : ({_LHS}, {_KERNEL}) -> {_OUT}",
        {**_common(_LHS, _KERNEL, _OUT), "C4": (_PADDING, "dense<[0, 1]> : tensor<2xi64>")},
    ),
    *(OpCase("convolution", body, breaks) for body, breaks in _quantized("", static=True)),
    OpCase(
        "dynamic_conv",
        f"{{{_ARRAYS}{_COUNTS}}} : ({_LHS}, {_KERNEL}, tensor<2x2xi64>) -> {_OUT}",
        {
            **_common(_LHS, _KERNEL, _OUT),
            "C4": [
                ("dense<[[0, 1], [0, 0]]> : tensor<2x2x", "dense<[[0, 1]]> : tensor<1x2x"),
                ("tensor<2x2xi64>)", "tensor<1x2xi64>)"),
            ],
        },
        arguments=f"%a: {_LHS}, %b: {_KERNEL}",
        operands="%a, %b, %p",
        prelude=_CONSTANT,
    ),
    *(OpCase("dynamic_conv", body, breaks) for body, breaks in _quantized("", static=False)),
]
