# ruff: noqa: E501 - programs stand as they are printed
"""Attributes: every kind is read as what it says and prints in MLIR's own spelling."""

import pytest

import spmd
from spmd import types as t
from spmd.artifacts.bytecode import write_bytecode
from spmd.dialects import structs
from spmd.ir.attributes import (
    ArrayAttr,
    Attribute,
    BoolAttr,
    DenseArrayAttr,
    DictAttr,
    EnumAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    StringAttr,
    SymbolRefAttr,
    TypeAttr,
    UnitAttr,
)
from spmd.syntax import parse, print_op
from spmd.syntax.attribute_printer import format_attribute


def read(text: str) -> Attribute:
    return parse(f'"a.b"() {{x = {text}}} : () -> ()').body.ops[0].discardable["x"]


I64 = t.I64
VALUES: list[tuple[str, Attribute]] = [
    ("unit", UnitAttr()),
    ("true", BoolAttr(True)),
    ("false", BoolAttr(False)),
    ("1 : i64", IntegerAttr(1, I64)),
    ("-5 : i8", IntegerAttr(-5, t.I8)),
    ("18446744073709551615 : ui64", IntegerAttr(2**64 - 1, t.UI64)),
    ("7 : index", IntegerAttr(7, t.INDEX)),
    ("7 : i5", IntegerAttr(7, t.OpaqueType("i5"))),
    ("1.500000e+00 : f32", FloatAttr(0x3FC00000, t.F32)),
    ("0x7FC00001 : f32", FloatAttr(0x7FC00001, t.F32)),
    ("-0.000000e+00 : f64", FloatAttr(1 << 63, t.F64)),
    ('"text"', StringAttr(b"text")),
    ('"\\22\\\\\\0A\\FF"', StringAttr(b'"\\\n\xff')),
    ('"typed" : i1', StringAttr(b"typed", t.I1)),
    ("@symbol", SymbolRefAttr(("symbol",))),
    ('@a::@"b c"', SymbolRefAttr(("a", "b c"))),
    ("[]", ArrayAttr(())),
    ("[1, 2]", ArrayAttr((IntegerAttr(1, I64), IntegerAttr(2, I64)))),
    ("[1 : i32, [unit], {}]", ArrayAttr((IntegerAttr(1, t.I32), ArrayAttr((UnitAttr(),)), DictAttr({})))),
    (
        '{a = 1 : i64, b, "c d" = @x}',
        DictAttr({"a": IntegerAttr(1, I64), "b": UnitAttr(), "c d": SymbolRefAttr(("x",))}),
    ),
    ("array<i64>", DenseArrayAttr(I64, ())),
    ("array<i64: 1, -2>", DenseArrayAttr(I64, (1, -2))),
    ("array<i1: true, false>", DenseArrayAttr(t.I1, (True, False))),
    ("array<f32: 1.500000e+00>", DenseArrayAttr(t.F32, (1.5,))),
    ("tensor<2xf32>", TypeAttr(t.TensorType((2,), t.F32))),
    ("(i1) -> ()", TypeAttr(t.FunctionType((t.I1,), ()))),
    ("i32", TypeAttr(t.I32)),
    ("#stablehlo<comparison_direction LT>", EnumAttr("stablehlo", "comparison_direction", "LT")),
    ("#unknown.attribute<a, [1, <2 -> 3>]>", OpaqueAttr("#unknown.attribute<a, [1, <2 -> 3>]>")),
    ("#unknown<a>", OpaqueAttr("#unknown<a>")),
    ("#unknown.bare", OpaqueAttr("#unknown.bare")),
    ('dense<["a", "b c"]> : tensor<2x!tf.string>', OpaqueAttr('dense<["a", "b c"]> : tensor<2x!tf.string>')),
    ("dense<1> : vector<4xi32>", OpaqueAttr("dense<1> : vector<4xi32>")),
    (
        "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>",
        structs.DotDimensionNumbersAttr((), (), (1,), (0,)),
    ),
    (
        "#stablehlo.gather<offset_dims = [2, 3], collapsed_slice_dims = [0], start_index_map = [1, 0], index_vector_dim = 2>",
        structs.GatherDimensionNumbersAttr((2, 3), (0,), (), (), (1, 0), 2),
    ),
    ("#stablehlo.scatter<>", structs.ScatterDimensionNumbersAttr()),
    (
        "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>",
        structs.ConvDimensionNumbersAttr(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
    ),
    (
        "#stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 0, input_spatial_dimensions = [7], "
        "kernel_input_feature_dimension = 0, kernel_output_feature_dimension = 0, kernel_spatial_dimensions = [], "
        "output_batch_dimension = 0, output_feature_dimension = 0, output_spatial_dimensions = []>",
        structs.ConvDimensionNumbersAttr(0, 0, (7,), 0, 0, (), 0, 0, ()),
    ),
    ("#stablehlo.channel_handle<handle = 1, type = 2>", structs.ChannelHandleAttr(1, 2)),
    (
        "#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 1, operand_tuple_indices = []>",
        structs.OutputOperandAliasAttr((0,), 1, ()),
    ),
    (
        "#stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, "
        "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, "
        "allow_imprecise_accumulation = false>",
        structs.DotAlgorithmAttr(t.BF16, t.BF16, t.F32, 1, 1, 3, False),
    ),
    (
        "#stablehlo.result_accuracy<atol = 1.0e-05, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>",
        structs.ResultAccuracyAttr(1e-5, 0.0, 2, "TOLERANCE"),
    ),
    (
        '#stablehlo.replica_group_mesh_axes<mesh = @m, axes = [#stablehlo.axis_ref<name = "x", sub_axis_info = (1)2>]>',
        structs.ReplicaGroupMeshAxesAttr(
            SymbolRefAttr(("m",)), ArrayAttr((structs.AxisRefAttr("x", structs.SubAxisInfoAttr(1, 2)),))
        ),
    ),
    (
        '#stablehlo.mesh<axes = [<name = "x", size = 2>, <name = "y", size = 4>]>',
        structs.MeshAttr((structs.MeshAxisAttr("x", 2), structs.MeshAxisAttr("y", 4))),
    ),
]


@pytest.mark.parametrize(("text", "meant"), VALUES)
def test_an_attribute_and_its_text(text: str, meant: Attribute) -> None:
    assert read(text) == meant
    assert read(format_attribute(meant)) == meant
    assert format_attribute(meant) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1", IntegerAttr(1, I64)),
        ("0x10", IntegerAttr(16, I64)),
        ("1.5", FloatAttr(0x3FF8000000000000, t.F64)),
        ("255 : i8", IntegerAttr(-1, t.I8)),
        ("+5 : i32", IntegerAttr(5, t.I32)),  # signs and exponents as the specification has them, "Constants"
        ("+1.5", FloatAttr(0x3FF8000000000000, t.F64)),
        ("15e-1", FloatAttr(0x3FF8000000000000, t.F64)),
        ("-2E+3 : f32", FloatAttr(0xC4FA0000, t.F32)),
        ("#stablehlo.comparison_direction<LT>", EnumAttr("stablehlo", "comparison_direction", "LT")),
        ("#stablehlo<channel_handle<handle = 1, type = 2>>", structs.ChannelHandleAttr(1, 2)),
        ("#stablehlo.dot<\n rhs_contracting_dimensions = [0] ,\n>", structs.DotDimensionNumbersAttr((), (), (), (0,))),
        ("[ 1 ,\n 2 ]", ArrayAttr((IntegerAttr(1, I64), IntegerAttr(2, I64)))),
        ("array< i64 : 1 , 2 >", DenseArrayAttr(I64, (1, 2))),
    ],
)
def test_another_spelling_of_an_attribute(text: str, meant: Attribute) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#stablehlo.dot<nothing = [1]>", "expected one of: lhs_batching_dimensions"),
        ("#stablehlo.dot<lhs_batching_dimensions = [1], lhs_batching_dimensions = [1]>", "duplicated"),
        ("#stablehlo.channel_handle<handle = 1>", "lacks type"),
        ("#stablehlo.axis_ref<>", "lacks name"),
        (
            '#stablehlo.axis_ref<name = "x", sub_axis_info = #stablehlo.channel_handle<handle = 1, type = 2>>',
            "sub_axis_info",
        ),
        ("#stablehlo.mesh<>", "lacks axes"),
        ("#stablehlo<comparison_direction XX>", "comparison_direction to be one of: EQ"),
        ("#stablehlo<no_enum XX>", "unknown stablehlo attribute 'no_enum'"),
        ("#chlo.precision_config<DEFAULT>", "unknown chlo attribute"),
        ("#stablehlo.replica_group_mesh_axes<mesh = @m, axes = 5>", "expected an array"),
        ("#stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, b]>", "expected a dimension"),
        ("#stablehlo.conv<[b, 1, f]x[0, i, o]->[b, 0, f]>", "spatial dimensions 0 not specified"),
        ("#stablehlo.conv<[b, 0, 0, f]x[0, i, o]->[b, 0, f]>", "Duplicate entries"),
        ("array<index: 1>", "array<...>"),
        ("array<i8: 300>", "out of range"),
        ("1 : tensor<2xi1>", "expected '}'"),
        ("dense<1>", "expected ':'"),
        ('dense ("0x00"> : tensor<1xi8>', "expected '<'"),
        ("@", "expected"),
        ("nothing", "expected an attribute value"),
    ],
)
def test_what_is_no_attribute(text: str, message: str) -> None:
    with pytest.raises(spmd.ParseError) as caught:
        read(text)
    assert message in str(caught.value)


def test_aliases_of_attributes() -> None:
    module = parse('#a = 1 : i32\n#b = [#a, #a]\n"a.b"() {x = #b} : () -> ()')
    assert module.body.ops[0].discardable["x"] == ArrayAttr((IntegerAttr(1, t.I32),) * 2)
    assert "[1 : i32, 1 : i32]" in print_op(module)
    for text, message in (("#a = 1\n#a = 2\nmodule {}", "redefinition"), ("#a.b = 1\nmodule {}", "reserved")):
        with pytest.raises(spmd.ParseError, match=message):
            parse(text)


@pytest.mark.parametrize(("text", "bits"), [("1 : f32", 0x3F800000), ("-0 : f32", 0x80000000), ("2 : bf16", 0x4000)])
def test_a_float_may_be_written_without_a_point(text: str, bits: int) -> None:
    """The specification's FloatLiteral has an optional fraction; MLIR's own has none."""
    attribute = read(text)
    assert isinstance(attribute, FloatAttr) and attribute.bits == bits
    assert read(format_attribute(attribute)) == attribute


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 : none", "a number has no type none"),
        ("1 : f80x", "expected"),
        ("1 : !a.b", "a number has no type !a.b"),
        ("1.5 : i128", "a number has no type i128"),
        ("1 : tuple<>", "a number has no type tuple<>"),
        (f"{2**128} : i128", "out of range for i128"),
        ("-1 : ui48", "out of range for ui48"),
        ("9" * 4100 + " : i999999", "the integer of 4100 digits is too large"),
    ],
)
def test_a_number_of_a_type_that_cannot_hold_it_is_refused(text: str, words: str) -> None:
    with pytest.raises(spmd.ParseError, match=words):
        read(text)


@pytest.mark.parametrize("text", ["7 : i5", "-1 : i128", f"{2**100} : ui128", f"{-(2**127)} : i128"])
def test_integers_of_types_that_no_array_holds_survive_bytecode(text: str) -> None:
    module = parse(f'"a.b"() {{x = {text}}} : () -> ()')
    assert format_attribute(spmd.parse(write_bytecode(module)).body.ops[0].discardable["x"]) == text


@pytest.mark.parametrize(
    "attribute",
    [
        'all_reduce"(%x) <{replica_groups = dense<0> : tensor<100000x100000xi64>}> ({{{sum}}})',
        'all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<-1> : tensor<1x9000000000xi64>}>',
        'collective_permute"(%x) <{source_target_pairs = dense<0> : tensor<4294967296x2xi64>}>',
        'slice"(%x) <{start_indices = dense<0> : tensor<9000000000xi64>, limit_indices = array<i64: 1>, strides = array<i64: 1>}>',
        'reverse"(%x) <{dimensions = dense<0> : tensor<9000000000xi64>}>',
    ],
)
def test_one_element_does_not_stand_for_more_of_an_attribute_than_can_be_looked_at(attribute: str) -> None:
    """They are refused at once, in little memory."""
    text = "stablehlo." + attribute.replace(
        "{{{sum}}}", "{^bb0(%a: tensor<f32>, %b: tensor<f32>): stablehlo.return %a : tensor<f32>}"
    )
    with pytest.raises(spmd.SpmdError, match=r"tensor<[0-9x]+i64> is too large"):
        spmd.parse(
            f'func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{ %0 = "{text} : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32> }}'
        )
