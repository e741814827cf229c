"""Checks: what passes, and what a failed one says."""

import ml_dtypes
import numpy as np
import pytest

import spmd
from tests.backends.modules import here, main, type_of


def check(name: str, x: np.ndarray, y: np.ndarray, attributes: str = "") -> None:
    pair = f", {type_of(y)}" if name == "check.expect_close" else ""
    lines = f"{name} %0, %1{attributes} : {type_of(x)}{pair}"
    here(main(lines, [x, y], f"%0 : {type_of(x)}"), x, y)


def custom(name: str, x: np.ndarray, y: np.ndarray) -> None:
    lines = f"stablehlo.custom_call @{name}(%0, %1) {{has_side_effect = true}} : ({type_of(x)}, {type_of(y)}) -> ()"
    here(main(lines, [x, y], f"%0 : {type_of(x)}"), x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4])
def test_expect_eq(dtype: type) -> None:
    x = np.array([[0, 1], [1, 0]]).astype(dtype)
    y = x.copy()
    check("check.expect_eq", x, y)
    custom("check.expect_eq", x, y)
    y[1, 0] = np.zeros((), dtype)
    with pytest.raises(spmd.ExecutionError, match=r"1 of 4 elements differ: element \[1, 0\]"):
        check("check.expect_eq", x, y)
    with pytest.raises(spmd.ExecutionError, match="1 of 4 elements differ"):
        custom("check.expect_eq", x, y)


def test_nans_are_equal_and_zeros_too() -> None:
    check("check.expect_eq", np.float32([np.nan, 0.0]), np.float32([np.nan, -0.0]))
    with pytest.raises(spmd.ExecutionError, match="got nan, expected 1"):
        check("check.expect_eq", np.float32([np.nan]), np.float32([1.0]))


def test_almost_equal_is_within_a_distance() -> None:
    x = np.float32([1000.0, np.inf, 1.0])
    check("check.expect_almost_eq", x, x + np.float32([0.0009, 0, 0]))
    with pytest.raises(spmd.ExecutionError, match="1 of 3 elements differ"):
        check("check.expect_almost_eq", x, x + np.float32([0, 0, 0.0011]))
    with pytest.raises(spmd.ExecutionError, match="expected inf"):
        check("check.expect_almost_eq", np.float32([1e30]), np.float32([np.inf]))
    with pytest.raises(spmd.ExecutionError, match="elements differ"):
        check("check.expect_almost_eq", np.complex64([1 + 1j]), np.complex64([1 + 1.01j]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_close_counts_representable_values(dtype: type) -> None:
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    x = np.array([1.0, -2.0, 0.0]).astype(dtype)
    three = (x.view(bits) + bits.type(3)).view(dtype)
    check("check.expect_close", x, three)
    custom("check.expect_close", x, three)
    check("check.expect_close", x, three, ", max_ulp_difference = 3, min_ulp_difference = 3")
    four = (x.view(bits) + bits.type(4)).view(dtype)
    with pytest.raises(spmd.ExecutionError, match="3 of 3 elements differ"):
        check("check.expect_close", x, four)
    check("check.expect_close", x, four, ", max_ulp_difference = 4")
    with pytest.raises(spmd.ExecutionError, match="the largest difference is 3 ULP, expected at least 4"):
        check("check.expect_close", x, three, ", max_ulp_difference = 9, min_ulp_difference = 4")


def test_close_goes_through_zero_and_not_to_infinity() -> None:
    tiny = np.float32(1e-45)
    check("check.expect_close", np.float32([tiny, -0.0]), np.float32([-tiny, 0.0]))
    for pair in ((np.finfo(np.float32).max, np.inf), (np.nan, np.inf), (np.nan, 1.0)):
        with pytest.raises(spmd.ExecutionError, match="elements differ"):
            check("check.expect_close", np.float32(pair[:1]), np.float32(pair[1:]))
    check("check.expect_close", np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]))


def test_a_constant_is_what_is_expected() -> None:
    x = np.int32([1, 2])
    here(main("check.expect_eq_const %0, dense<[1, 2]> : tensor<2xi32>", [x], "%0 : tensor<2xi32>"), x)
    with pytest.raises(spmd.ExecutionError, match=r"element \[1\]: got 2, expected 3"):
        here(main("check.expect_eq_const %0, dense<[1, 3]> : tensor<2xi32>", [x], "%0 : tensor<2xi32>"), x)


def test_a_failure_names_file_and_line() -> None:
    x = np.float32([1.0])
    text = main(f"check.expect_eq %0, %1 : {type_of(x)}", [x, x], f"%0 : {type_of(x)}")
    with pytest.raises(spmd.ExecutionError) as caught:
        spmd.compile(spmd.parse(text, name="checks.mlir"))(x, x + 1)
    assert str(caught.value).startswith("checks.mlir:2:1: check.expect_eq: ")


def test_a_probe_keeps_each_value_it_sees() -> None:
    lines = """
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r = stablehlo.while(%i = %zero) : tensor<i32>
      cond { %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1> }
      do { %n = stablehlo.add %i, %one : tensor<i32>
        %q = interpreter.probe %n, probe_id = "n" : tensor<i32>
        stablehlo.return %q : tensor<i32> }
      check.expect_serialized_eq %one, probe_id = "n" : tensor<i32>
      check.expect_serialized_eq %two, probe_id = "n", iter = 1 : tensor<i32>"""
    here(main(lines, [], "%r : tensor<i32>"))
    other = lines.replace('"n"', '"m"').replace("iter = 1", "iter = 2")
    with pytest.raises(spmd.ExecutionError, match="probe 'm' saw 2 values, none at iteration 2"):
        here(main(other, [], "%r : tensor<i32>"))


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i32"])
def test_scalars_are_told_apart(element: str) -> None:
    number = "{}.0" if element[0] != "i" else "{}"
    for second, agree in ((number.format(1), True), (number.format(5), False)):
        for op in ("expect_close %a, %b : T, T", "expect_close %a, %b, max_ulp_difference = 5 : T, T",
                   "expect_almost_eq %a, %b, tolerance = 0.1 : T"):  # fmt: skip
            text = f"""func.func @main() {{
              %a = stablehlo.constant dense<{number.format(1)}> : T
              %b = stablehlo.constant dense<{second}> : T
              check.{op}
              return
            }}""".replace("T", f"tensor<{element}>")
            program = spmd.compile(spmd.parse(text))
            if agree:
                program()
            else:
                with pytest.raises(spmd.ExecutionError, match="1 of 1 elements differ: value"):
                    program()


def test_a_tolerance_stands_behind_the_operands_or_among_the_attributes() -> None:
    for form in (", tolerance = 0.5 : tensor<f64>", " {tolerance = 0.5 : f64} : tensor<f64>"):
        module = spmd.parse(f"""func.func @main(%a: tensor<f64>, %b: tensor<f64>) {{
          check.expect_almost_eq %a, %b{form}
          return
        }}""")
        assert str(spmd.parse(str(module))) == str(module)
        program = spmd.compile(module)
        program(1.0, 1.5)
        with pytest.raises(spmd.ExecutionError, match="differ"):
            program(1.0, 1.6)
