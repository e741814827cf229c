"""Productions of the specification's grammar that MLIR spells otherwise, or does not have."""

import numpy as np
import pytest

import spmd
from spmd.artifacts.bytecode import write_bytecode

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
