"""Productions of the specification's grammar that MLIR spells otherwise, or does not have."""

import numpy as np
import pytest

import spmd
from spmd.artifacts.bytecode import write_bytecode
from spmd.ir.attributes import TypeAttr
from spmd.syntax import difference

BODY = """(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.abs"(%a) ATTRIBUTES : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def module_with(attribute: str) -> spmd.Module:
    """A program with `attribute` on its one op."""
    return spmd.parse("func.func @main" + BODY.replace("ATTRIBUTES", f"{{x = {attribute}}}"))


@pytest.mark.parametrize("spelled", ["func.func", "func . func", "func\n.\nfunc"])
def test_a_function_is_spelled_of_three_tokens(spelled: str) -> None:
    module = spmd.parse(f"{spelled} @main" + BODY.replace("ATTRIBUTES", ""))
    (result,) = spmd.compile(module)(np.float32([-1, 2]))
    assert result.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1.0, -2.0) : complex<f32>", np.complex64(1 - 2j)),
        ("(-0.0, 1.0e300) : complex<f64>", np.complex128(complex(-0.0, 1e300))),
        ("( 3.5 ,\n 0.0 ) : complex<f64>", np.complex128(3.5)),
    ],
)
def test_a_complex_constant(text: str, value: np.generic) -> None:
    module = module_with(text)
    for one in (module, spmd.parse(str(module)), spmd.parse(write_bytecode(module))):
        constant = one.functions[0].body.ops[0].discardable["x"]
        assert constant.array.tobytes() == value.tobytes()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text", ["(1.0, 2.0) : f32", "(1.0) : complex<f32>", "(1.0, 2.0, 3.0) : complex<f32>", "(1.0, 2.0)"]
)
def test_what_is_no_complex_constant(text: str) -> None:
    with pytest.raises(spmd.ParseError):
        module_with(text)


def test_the_type_of_strings() -> None:
    module = module_with("string")
    assert str(spmd.parse(str(module))) == str(module)
    assert "x = string" in str(spmd.parse(write_bytecode(module)))
    text = "func.func @main(%a: tensor<2xstring>) { %0 = stablehlo.abs %a : tensor<2xstring>\n return }"
    with pytest.raises(spmd.VerificationError, match=r"\(I1\) operand is a tensor .*, got tensor<2xstring>"):
        spmd.parse(text)


def test_a_comma_behind_the_last_attribute() -> None:
    """As the specification's examples of custom_call have it."""
    assert str(module_with("1 : i32, ")) == str(module_with("1 : i32"))
    for wrong in ("1 : i32, , ", ", "):
        with pytest.raises(spmd.ParseError):
            module_with(wrong)


RETURN = '"func.return"(%a) : (tensor<2xf32>) -> ()'


def same(as_the_document: str, as_mlir: str) -> None:
    """One program in both spellings, which its own print is read as, too."""
    module = spmd.parse(as_the_document)
    for other in (as_mlir, str(module)):
        assert difference(module, spmd.parse(other)) is None


def op(text: str) -> str:
    return f"func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{ {text} {RETURN} }}"


@pytest.mark.parametrize(
    ("outputs", "types"), [("", ""), ("-> TYPE", "TYPE"), ("-> TYPE, TYPE", "TYPE, TYPE"), ("-> (TYPE)", "TYPE")]
)
def test_func_outputs(outputs: str, types: str) -> None:
    values = ", ".join(["%a"] * types.count("TYPE"))
    end = f'"func.return"({values}) : ({types}) -> ()'
    text = f"func.func @main(%a: TYPE) OUTPUTS {{ {end} }}"
    spellings = [text.replace("OUTPUTS", each).replace("TYPE", "tensor<i1>") for each in (outputs, f"-> ({types})")]
    same(*spellings)


@pytest.mark.parametrize("name", ["0", "12", "a", "_", "A9_z", "Z"])
def test_identifiers(name: str) -> None:
    """FuncId, ValueId, Unused and OpInputAttrName."""
    word = name if not name.isdigit() else "f"
    body = f'^{name}(%x: tensor<f32>): "stablehlo.return"(%x) : (tensor<f32>) -> ()'
    text = f"""func.func @{word}(%{name}: tensor<2xf32>) -> tensor<2xf32> {{
      %r = "stablehlo.map"(%{name}) ({{ {body} }}) {{dimensions = dense<0> : tensor<1xsi64>, {word} = true}}
        : (tensor<2xf32>) -> (tensor<2xf32>)
      "func.return"(%r) : (tensor<2xf32>) -> () }}"""
    module = spmd.parse(text)
    assert module.functions[0].symbol == word
    assert word in module.functions[0].body.ops[0].discardable
    assert difference(module, spmd.parse(str(module))) is None


TYPES = {
    "token": "!stablehlo.token",
    "tuple<>": "tuple<>",
    "tuple<tensor<2xi1>, token, tuple<token>>": "tuple<tensor<2xi1>, !stablehlo.token, tuple<!stablehlo.token>>",
    "future<tensor<2xf32>, tensor<i1>>": "!stablehlo.future<tensor<2xf32>, tensor<i1>>",
    "tensor<2 x ? x f32>": "tensor<2x?xf32>",
    "tensor<0xcomplex<f64>>": "tensor<0xcomplex<f64>>",
    **{f"tensor<si{bits}>": f"tensor<i{bits}>" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"tensor<ui{bits}>": f"tensor<ui{bits}>" for bits in (2, 4, 8, 16, 32, 64)},
    "tensor<2x!quant.uniform<i8<-0x7f:+127>:f32, +0.5:+3>>": "tensor<2x!quant.uniform<i8<-127:127>:f32, 0.5:3>>",
    "tensor<2x!quant.uniform<i8:f32, {0.5:3}>>": "tensor<2x!quant.uniform<i8:f32, 0.5:3>>",
    "tensor<2x!quant.uniform<ui4:bf16:0, {1, 0.5:0xA}>>": "tensor<2x!quant.uniform<u4:bf16:0, {1.0, 0.5:10}>>",
}


@pytest.mark.parametrize(("type", "as_mlir"), TYPES.items())
def test_value_types(type: str, as_mlir: str) -> None:
    text = 'func.func @main(%a: TYPE) -> TYPE { "func.return"(%a) : (TYPE) -> () }'
    same(text.replace("TYPE", type), text.replace("TYPE", as_mlir))


@pytest.mark.parametrize(
    "type", ["() -> ()", "(tensor<f32>, token) -> (future<tensor<f32>>)", "tf32", "si8", "string", "complex<f32>"]
)
def test_types_that_no_value_has(type: str) -> None:
    module = spmd.parse(op(f'%0 = "stablehlo.abs"(%a) {{x = {type}}} : (tensor<2xf32>) -> (tensor<2xf32>)'))
    assert isinstance(module.functions[0].body.ops[0].discardable["x"], TypeAttr)
    assert difference(module, spmd.parse(str(module))) is None


CONSTANTS = {
    "true": "true",
    "+5 : si32": "5 : i32",
    "-0x1F : si32": "-31 : i32",
    "-0x80 : si8": "-128 : i8",
    "+0xfF : ui8": "255 : ui8",
    "1 : f32": "1.0 : f32",
    "+1. : f64": "1.0 : f64",
    "-1E+1 : bf16": "-10.0 : bf16",
    "1.5e-0 : f16": "1.5 : f16",
    "0x3f800000 : f32": "1.0 : f32",
    "dense<[+1, -2, 0x3]> : tensor<3xsi32>": "dense<[1, -2, 3]> : tensor<3xi32>",
    "dense<-0x3> : tensor<si32>": "dense<-3> : tensor<i32>",
    "dense<1, 2> : tensor<2xsi8>": "dense<[1, 2]> : tensor<2xi8>",
    "dense<[]> : tensor<0xf32>": "dense<> : tensor<0xf32>",
    "dense<[[], []]> : tensor<2x0xf32>": "dense<> : tensor<2x0xf32>",
    "dense<[[1, 2], [3, 4]]> : tensor<2x2xf32>": "dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>",
    "dense<true, false> : tensor<2xi1>": "dense<[true, false]> : tensor<2xi1>",
    "dense<[(1, -2), (+3., 0x3F800000)]> : tensor<2xcomplex<f32>>": (
        "dense<[(1.0, -2.0), (3.0, 1.0)]> : tensor<2xcomplex<f32>>"
    ),
    r'"a\"b\\c\n\t\0A"': r'"a\22b\5Cc\0A\09\0A"',
}


def constant_op(value: str) -> str:
    return op(f'%0 = "stablehlo.abs"(%a) {{x = {value}}} : (tensor<2xf32>) -> (tensor<2xf32>)')


@pytest.mark.parametrize(("constant", "as_mlir"), CONSTANTS.items())
def test_constants(constant: str, as_mlir: str) -> None:
    same(constant_op(constant), constant_op(as_mlir))


@pytest.mark.parametrize(
    "text",
    ["dense<(1, -0x0)> : tensor<complex<f32>>", "-0x81 : si8", "-0x1 : ui8", "-0x3f800000 : f32", "0x : f32"],
)
def test_what_is_no_constant(text: str) -> None:
    """Bits of floats have no sign, and there are some."""
    with pytest.raises(spmd.ParseError):
        spmd.parse(constant_op(text))


def test_op_outputs() -> None:
    """Several have a name each, or none is given."""
    types = "(tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)"
    barrier = f'"stablehlo.optimization_barrier"(%a, %a) {{}} : {types}'
    same(op(f"%0, %1 = {barrier}"), op(f"%0:2 = {barrier}"))
    same(op(barrier), op(f"%0:2 = {barrier}"))


@pytest.mark.parametrize("label", ["^bb0():", "^0():", "^Body_1():", ""])
def test_op_input_funcs(label: str) -> None:
    branch = f'{{ {label} "stablehlo.return"(%a) : (tensor<2xf32>) -> () }}'
    condition = '%p = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> (tensor<i1>)'
    text = op(f'{condition} %0 = "stablehlo.if"(%p) ({branch}, {branch}) : (tensor<i1>) -> (tensor<2xf32>)')
    same(text, text.replace(label, "") if label else text)
