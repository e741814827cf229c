"""MLIR's own attributes and types: whatever the reference writes is read, and what is written it reads back."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import spmd
from spmd.artifacts.bytecode import write_bytecode
from spmd.types import F32, FunctionType, OpaqueType, TensorType, TupleType, Type
from tests.artifacts import reference

#: As the reference prints them, so that text and bytecode are seen to be one.
ATTRIBUTES = (
    'dense<["a", "b\\0Ac"]> : tensor<2x!my.string>',
    'dense<"a"> : tensor<2x!my.string>',
    "sparse<[[0, 1], [1, 2]], [5, 6]> : tensor<3x4xi32>",
    "sparse<0, 1> : tensor<1xi32>",
    "strided<[2, ?], offset: 3>",
    "affine_set<(d0) : (d0 - 1 == 0, d0 >= 0)>",
    "affine_map<(d0, d1)[s0] -> (d0 ceildiv 8, d1 - s0)>",
    "affine_map<(d0, d1) -> (d0, d1)>",
    "affine_map<(d0, d1, d2) -> (d2, d0)>",
    "affine_map<(d0, d1) -> (d1, d0)>",
    "affine_map<(d0, d1) -> (d0, 0)>",
    "affine_map<() -> ()>",
    "strided<[]>",
    "strided<[?, -3], offset: ?>",
    "affine_set<(d0)[s0, s1] : (d0 - s0 >= 0, s1 == 0, d0 mod 4 - 2 == 0)>",
    "array<f8E5M2: 1.000000e+00>",
    '"a string" : i32',
    "123456789012345678901234567890 : i128",
    "-1 : i128",
    "0x7FC00000 : f32",
    "none",
    "[1 : i3, unit, f80]",
    "#complex.number<:f32 1.000000e+00, 2.000000e+00> : complex<f32>",
    'loc("a.py":1:2 to 3:4)',
    'loc(fused<"why">["a":1:2, callsite("f" at "b":3:4)])',
)
TYPES = (
    *("f8E5M2", "f8E4M3", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E3M4", "f8E8M0FNU"),
    *("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "tf32", "bf16", "f16", "f80", "f128", "i1", "ui4", "i17", "index", "none"),
    *("memref<*xf32>", "memref<*xf32, 1>", "memref<2x?xf32, strided<[2, 1], offset: 1>>", "memref<2xf32>"),
    *("vector<2x[4]xf32>", "vector<[4]xi1>", "vector<2x3xf32>", "vector<f32>"),
    *("tensor<*xf32>", 'tensor<2xf32, "encoding">', "tensor<2xvector<2xf32>>", "tensor<0x?xf32>"),
    *("tuple<>", "() -> ()", "(i32, i32) -> tuple<f32>", "complex<i32>", "!my.type<x>"),
)


def attribute_of(module: spmd.Module) -> object:
    (op,) = module.body.ops
    return op.discardable["x"]


@pytest.mark.parametrize("text", ATTRIBUTES + TYPES)
def test_attributes_and_types_of_mlir(text: str) -> None:
    program = f'"my.op"() {{x = {text}}} : () -> ()'
    module, read = spmd.parse(program), spmd.parse(reference.bytecode(program, 6))
    if not text.startswith("memref<*xf32, 1"):  # whose memory space is printed with its type
        assert attribute_of(read) == attribute_of(module)
    assert str(spmd.parse(str(module))) == str(module)
    for written in (write_bytecode(module), write_bytecode(read)):
        assert reference.text_of(written) == reference.text_of(program.encode())


@pytest.mark.parametrize("type", ["tf32", "f80", "f128"])
@pytest.mark.parametrize("number", ["3.0", "-0.0", "1.0e-30"])
def test_floats_that_no_array_holds_are_kept(number: str, type: str) -> None:
    program = f'"my.op"() {{x = {number} : {type}}} : () -> ()'
    read = spmd.parse(reference.bytecode(program, 6))
    for written in (write_bytecode(read), write_bytecode(spmd.parse(program)), str(read).encode()):
        assert reference.text_of(written) == reference.text_of(program.encode())


@pytest.mark.parametrize("type", ["vector<2xi32>", "memref<2xi32>", "tensor<2xi17>"])
def test_elements_that_no_array_holds_are_kept(type: str) -> None:
    program = f'"my.op"() {{x = dense<[1, -2]> : {type}}} : () -> ()'
    read = spmd.parse(reference.bytecode(program, 6))
    assert reference.text_of(write_bytecode(read)) == reference.text_of(program.encode())
    assert reference.text_of(write_bytecode(spmd.parse(program))) == reference.text_of(program.encode())


_LEAF = st.sampled_from(["d0", "d1", "s0", "s1", "-2", "-1", "0", "1", "3"])
_EXPRESSION = st.recursive(
    _LEAF,
    lambda part: st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from("+-"), part),
        st.builds("({} {} {})".format, part, st.sampled_from(["*", "mod", "floordiv", "ceildiv"]), st.integers(1, 9)),
        st.builds("(-{} * {})".format, part, st.sampled_from(["s0", "-1", "3", "-4"])),
    ),
    max_leaves=8,
)


def _settled(program: str) -> str:
    """The program as MLIR prints it, again and again until it stays: d0 + (d0 + d1), d0 + d0 + d1, d0 * 2 + d1."""
    printed = reference.text_of(program.encode())
    return program if printed == program else _settled(printed)


@given(st.lists(_EXPRESSION, max_size=3))
@example(["d0 + (d0 + d1)"])
def test_affine_maps_are_printed_as_mlir_prints_them(results: list[str]) -> None:
    """Parentheses stand where they are needed, and what is added with a minus is subtracted."""
    program = _settled(f'"my.op"() {{x = affine_map<(d0, d1)[s0, s1] -> ({", ".join(results)})>}} : () -> ()')
    data = reference.bytecode(program, 6)
    printed, module = reference.text_of(data), spmd.parse(data)
    assert printed.splitlines()[0] == f"#map = {attribute_of(module).text}"  # type: ignore[attr-defined]
    assert reference.text_of(write_bytecode(module)) == printed


def test_distinct_attributes_stay_distinct() -> None:
    listed = "distinct[0]<1 : i32>, distinct[1]<1 : i32>, distinct[0]<1 : i32>, distinct[7]<>"
    program = f'"my.op"() {{x = [{listed}]}} : () -> ()'
    read = spmd.parse(reference.bytecode(program, 6))
    for module in (read, spmd.parse(program), spmd.parse(write_bytecode(read))):
        first, second, third, empty = attribute_of(module).elements  # type: ignore[attr-defined]
        assert first == third != second
        assert empty.text.endswith("<>")


def test_strings_that_are_not_there_are_told_with_their_byte() -> None:
    """A tensor of two strings whose type says that it has very many."""
    data = reference.bytecode('"my.op"() {x = dense<["a", "b"]> : tensor<2x!my.s>} : () -> ()', 6)
    shape = bytes([13 << 1 | 1, 1 << 1 | 1, 2 << 2 | 1])  # a tensor type of rank 1 and size 2
    assert data.count(shape) == 1
    damaged = data.replace(shape, shape[:2] + bytes([60 << 2 | 1]))
    with pytest.raises(spmd.ParseError, match=r"byte .*60 strings do not fit"):
        spmd.parse(damaged)


LOCATED = """#loc1 = loc("x")
func.func @main(%arg0: tensor<4xf32> {jax.arg = "a"} loc("x"(#loc1)), %arg1: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.reduce(%arg0 init: %arg1) across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    reducer(%arg2: tensor<f32> loc("left":1:2), %arg3: tensor<f32> loc("right")) {
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32> loc("sum")
      stablehlo.return %2 : tensor<f32> loc(unknown)
    } loc(callsite("f" at "g":3:4))
  %1 = stablehlo.while(%iterArg = %0) : tensor<f32>
    cond { %2 = stablehlo.is_finite %iterArg : (tensor<f32>) -> tensor<i1> loc("?"(#loc1))
      stablehlo.return %2 : tensor<i1> }
    do { stablehlo.return %iterArg : tensor<f32> } loc("loop")
  %4 = "stablehlo.while"(%1) ({
    ^bb0(%x: tensor<f32> loc("carried")):
      %2 = stablehlo.is_finite %x : (tensor<f32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
  }, {
    ^bb0(%x: tensor<f32>):
      stablehlo.return %x : tensor<f32>
  }) : (tensor<f32>) -> tensor<f32>
  return %4 : tensor<f32>
} loc("main")
"""


def locations(module: spmd.Module) -> list[str | None]:
    """Those of ops, each before those of the arguments of its blocks."""
    read: list[str | None] = []
    for op in module.walk():
        read.append(op.debug_location)
        blocks = [block for region in op.regions for block in region.blocks]
        read += [argument.debug_location for block in blocks for argument in block.arguments]  # type: ignore[attr-defined]
    return read


WHERE = [
    *(None, '"main"', '"x"("x")', None),
    *('callsite("f" at "g":3:4)', '"left":1:2', '"right"', '"sum"', None),
    *('"loop"', None, None, '"?"("x")', None, None),
    *(None, '"carried"', None, None, None, None),
    None,
]


def test_places_of_ops_and_arguments_are_kept_in_every_form() -> None:
    module = spmd.parse(LOCATED)
    known = [None if text == "unknown" else text for text in locations(module)]
    assert known == WHERE
    for generic in (False, True):
        again = spmd.parse(module.to_string(generic=generic, debug_info=True))
        assert locations(again) == locations(module)
        assert "loc(" not in module.to_string(generic=generic)
    for version in range(7):
        assert locations(spmd.parse(write_bytecode(module, version=version))) == WHERE
    for version in ("minimum", "1.0.0", "current"):
        assert locations(spmd.parse(spmd.serialize(module, version=version))) == WHERE
    theirs = locations(spmd.parse(reference.bytecode(LOCATED, 6)))  # where the text tells none, they make one
    assert [one for one, known in zip(theirs, WHERE, strict=True) if known] == [known for known in WHERE if known]


def test_the_reference_reads_the_places_that_are_written() -> None:
    text = reference.text_of(write_bytecode(spmd.parse(LOCATED)), debug_info=True)
    assert locations(spmd.parse(text)) == [known or "unknown" for known in WHERE]


@pytest.mark.parametrize("element", [TensorType((2,), F32), TupleType(()), FunctionType((), ()), OpaqueType("none")])
def test_tensors_of_what_is_no_element_are_refused(element: Type) -> None:
    """As those of text are: MLIR has no such type."""
    module = spmd.parse("func.func private @f(tensor<2xf32>)")
    (function,) = module.functions
    function.attributes = {**function.attributes, "function_type": FunctionType((TensorType((2,), element),), ())}
    with pytest.raises(spmd.ParseError, match="a tensor cannot have elements of type"):
        spmd.parse(write_bytecode(module))


def test_a_type_that_has_no_text_is_refused() -> None:
    """It is told what is wrong with it, though it cannot be written out."""
    type = "tensor<2x!quant.uniform<i8:f32:0, {0.5:1, 0.25:2}>>"
    data = spmd.serialize(spmd.parse(f"func.func private @f({type})"))
    both, one = b"\x05\x05\x09", b"\x03\x0a\x00"  # two zero points, 1 and 2, and 1 alone in as many bytes
    assert data.count(both) == 1
    with pytest.raises(spmd.ParseError, match=r"\(C9\) size\(scales\) = size\(zero_points\), got 2 and 1"):
        spmd.parse(data.replace(both, one))
