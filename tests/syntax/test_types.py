"""Types: every spelling is read as the type it means and prints back; what is no type is refused at its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spmd
from spmd import types as t
from spmd.syntax import difference, parse, print_op


def read(text: str) -> t.Type:
    function = parse(f"func.func private @f({text})").functions[0]
    return function.type.inputs[0]


@pytest.mark.parametrize("name", [name for name in t.ELEMENT_TYPES if name != "tf32"])
def test_an_element_type_makes_tensors(name: str) -> None:
    assert read(f"tensor<2x?x{name}>") is t.TensorType((2, None), t.ELEMENT_TYPES[name])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tensor<f32>", t.TensorType((), t.F32)),
        ("tensor<0x1xf32>", t.TensorType((0, 1), t.F32)),
        ("tensor<4 x 5 x f32>", t.TensorType((4, 5), t.F32)),
        ("tensor<4x5x\n  f32>", t.TensorType((4, 5), t.F32)),
        ("tensor<2xsi32>", t.TensorType((2,), t.I32)),
        ("tensor<*xf32>", t.UnrankedTensorType(t.F32)),
        ("tensor<?x3xf32, #stablehlo.bounds<4, ?>>", t.TensorType((None, 3), t.F32, (4, None))),
        ("tensor<?x3xf32, #stablehlo.type_extensions<bounds = [4, ?]>>", t.TensorType((None, 3), t.F32, (4, None))),
        ("tensor<?x3xf32, #stablehlo.type_extensions<bounds = [4, -1]>>", t.TensorType((None, 3), t.F32, (4, None))),
        ("tensor<3xf32, #sparse.x<a>>", t.TensorType((3,), t.F32, None, "#sparse.x<a>")),
        ("tensor<3xf32, 7 : i64>", t.TensorType((3,), t.F32, None, "7 : i64")),
        ("tensor<3xf32, {a = 1}>", t.TensorType((3,), t.F32, None, "{a = 1}")),
        ("tensor<2x!stablehlo.token>", t.TensorType((2,), t.TOKEN)),
        ("token", t.TOKEN),  # the specification's own spelling
        ("tuple<token, tensor<f32>>", t.TupleType((t.TOKEN, t.TensorType((), t.F32)))),
        ("tensor<2xf80>", t.TensorType((2,), t.OpaqueType("f80"))),
        ("tensor<2x!quant.any<i8:f32>>", t.TensorType((2,), t.OpaqueType("!quant.any<i8:f32>"))),
        (
            "tensor<2x!quant.uniform<f8E4M3FN:f32, 1.0>>",
            t.TensorType((2,), t.OpaqueType("!quant.uniform<f8E4M3FN:f32, 1.0>")),
        ),
        ("memref<2x?xf32>", t.BufferType((2, None), t.F32)),
        ("memref<2xf32, strided<[1]>, 3>", t.BufferType((2,), t.F32, "strided<[1]>, 3")),
        ("!stablehlo.token", t.TOKEN),
        ("!stablehlo.future<tensor<f32>>", t.FutureType((t.TensorType((), t.F32),))),
        ("tuple<>", t.TupleType(())),
        (
            "tuple<tensor<f32>, tuple<!stablehlo.token>>",
            t.TupleType((t.TensorType((), t.F32), t.TupleType((t.TOKEN,)))),
        ),
        ("(i1) -> ()", t.FunctionType((t.I1,), ())),
        ("((i1) -> i1, i2) -> (i1, i2)", t.FunctionType((t.FunctionType((t.I1,), (t.I1,)), t.I2), (t.I1, t.I2))),
        ("!some.type<a, [1, <2>]>", t.OpaqueType("!some.type<a, [1, <2>]>")),
        ("vector<4xf32>", t.OpaqueType("vector<4xf32>")),
    ],
)
def test_a_type_and_its_text(text: str, meant: t.Type) -> None:
    assert read(text) is meant
    assert read(str(meant)) is meant


QUANTIZED = [
    ("i8:f32, 0.1", t.QuantizedType(t.I8, t.F32, -128, 127, (0.1,), (0,))),
    ("u8:f32, 0.5:128", t.QuantizedType(t.UI8, t.F32, 0, 255, (0.5,), (128,))),
    ("ui8:bf16, 2.0", t.QuantizedType(t.UI8, t.BF16, 0, 255, (2.0,), (0,))),
    ("i8<-127:127>:f32:1, {0.1:-3, 0.5}", t.QuantizedType(t.I8, t.F32, -127, 127, (0.1, 0.5), (-3, 0), 1)),
    (
        "i8:f32:{0:1, 1:2}, {{2.0:120, 3.0:127}, {1.0, 2.0}}",
        t.QuantizedType(t.I8, t.F32, -128, 127, (2.0, 3.0, 1.0, 2.0), (120, 127, 0, 0), None, ((0, 1), (1, 2)), (2, 2)),
    ),
]


@pytest.mark.parametrize(("text", "meant"), QUANTIZED)
def test_a_quantized_type_and_its_text(text: str, meant: t.QuantizedType) -> None:
    assert read(f"tensor<2x4x!quant.uniform<{text}>>") is t.TensorType((2, 4), meant) or meant.is_per_axis
    assert read(f"!quant.uniform<{text}>") is meant
    assert read(str(meant)) is meant


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(-128, 127))
def test_the_parameters_of_a_quantized_type_keep_every_bit(scale: float, zero_point: int) -> None:
    quantized = t.QuantizedType(t.I8, t.F64, -128, 127, (scale,), (zero_point,))
    assert read(str(quantized)) is quantized


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("tensor<3xf32, #stablehlo.bounds<4>>", 0, "dynamic dimensions"),
        ("tensor<?x?xf32, #stablehlo.bounds<4>>", 0, "rank 2"),
        ("tensor<?xf32, #stablehlo.bounds<x>>", 14, "bounds"),
        ("!stablehlo.foo", 0, "unknown stablehlo type: foo"),
        ("!quant.most<i8:f32>", 0, "unknown quant type"),
        ("tensor<2xnone>", 9, "elements of type none"),
        ("tensor<*xtuple<>>", 8, "elements of type"),
        ("memref<2x!stablehlo.token>", 9, "elements of type"),
        ("<f32>", 0, "expected a type"),
        ("!alias", 0, "undefined type alias"),
        ("!<f32>", 0, "undefined type alias"),
        ("tensor<2xf32, do<3>>", 14, "attribute that encodes a tensor"),
        ("tensor<2xf32, #stablehlo.foo<3>>", 14, "does not encode a tensor"),
        ("tensor<99999999999999999999xf32>", 7, "64 bits"),
        ("tensor<" + "1x" * 65 + "f32>", 7, "64 dimensions"),
        ("tensor<2xtensor<f32>>", 9, "elements of type"),
        ("tensor<2xf99>", 9, "expected a type"),
        ("tensor<-1xf32>", 7, "expected a type"),
        ("complex<tensor<f32>>", 8, "complex"),
        ("i0", 0, "from 1 to"),
        ("!quant.uniform<i8<5:3>:f32, 0.1>", 0, "(C3)"),
        ("!quant.uniform<i8<-129:3>:f32, 0.1>", 0, "(C3)"),
        ("!quant.uniform<i8:i32, 0.1>", 18, "(C4)"),
        ("!quant.uniform<i8:f32, 0.0>", 0, "(C5)"),
        ("!quant.uniform<i8:f32:-1, {0.1}>", 0, "(C11)"),
        ("!quant.uniform<i64:f32, 0.1>", 15, "storage type"),
        ("!quant.uniform<f8:f32, 0.1>", 15, "storage type"),
        ("!quant.uniform<i8:f32, x>", 23, "scale"),
        ("tensor<3x!quant.uniform<i8:f32:{0:2}, {0.1, 0.2}>>", 7, "do not divide"),
    ],
)
def test_what_is_wrong_with_a_type_is_told_where_it_stands(text: str, column: int, message: str) -> None:
    start = len("func.func private @f(") + 1
    with pytest.raises(spmd.ParseError) as caught:
        read(text)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.location.column == start + column


def test_types_by_alias() -> None:
    module = parse(
        """
        !a = tensor<2xf32>
        !q = !quant.uniform<i8:f32, 1.0>
        !b = tuple<!a, tensor<1x!q>>
        #bounds = #stablehlo.bounds<4>
        #sparse = #sparse_tensor.encoding<{
          map = (d0) -> (d0 : compressed)
        }>
        func.func private @f(!a, !b, tensor<?xf32, #bounds>, tensor<2xf32, #sparse>)
        """
    )
    quantized = t.QuantizedType(t.I8, t.F32, -128, 127, (1.0,), (0,))
    pair = t.TupleType((t.TensorType((2,), t.F32), t.TensorType((1,), quantized)))
    assert module.functions[0].type.inputs == (
        t.TensorType((2,), t.F32),
        pair,
        t.TensorType((None,), t.F32, (4,)),
        t.TensorType((2,), t.F32, None, "#sparse_tensor.encoding<{ map = (d0) -> (d0 : compressed) }>"),
    )
    assert difference(module, parse(print_op(module))) is None


@pytest.mark.parametrize(
    "element", ["!stablehlo.token", "f80", "!quant.any<i8:f32>", "!quant.uniform<f8E5M2:f32, 1.0>"]
)
def test_elements_that_no_op_takes_are_refused_where_an_op_takes_them(element: str) -> None:
    text = f"func.func @f(%a: tensor<2x{element}>) {{\n %0 = stablehlo.abs %a : tensor<2x{element}>\n return\n}}"
    with pytest.raises(spmd.VerificationError) as caught:
        spmd.parse(text)
    assert [diagnostic.location.line for diagnostic in caught.value.diagnostics] == [2]


def test_results_of_a_function_without_parentheses() -> None:
    """Specification, "Functions": FuncOutputs ::= ['->' FuncOutput, {',' FuncOutput}]."""
    text = """func.func @main(%0: token, %1: tensor<f32>) -> token, tensor<f32> {
      "func.return"(%0, %1) : (token, tensor<f32>) -> ()
    }"""
    function = spmd.parse(text).function("main")
    assert function.type.results == (t.TOKEN, t.TensorType((), t.F32))
    assert (
        difference(spmd.parse(text), spmd.parse(text.replace("-> token, tensor<f32>", "-> (token, tensor<f32>)")))
        is None
    )
