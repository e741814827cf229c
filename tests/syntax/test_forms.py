# ruff: noqa: E501 - programs stand as they are printed
"""Both forms of ops, in the spellings that programs use, are read as the same op, and print back."""

import pytest

import spmd
from spmd.dialects import OPS
from spmd.syntax import difference, parse, print_op
from spmd.syntax.assembly import assembly_format

CONV = "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>"
SAME = {
    "arrays in the old spelling": [
        "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        '%0 = "stablehlo.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>',
        '%0 = "stablehlo.transpose"(%a) <{permutation = dense<[1, 0]> : tensor<2xi64>}> '
        ": (tensor<2x3xf32>) -> tensor<3x2xf32>",
    ],
    "enums": [
        "%0 = stablehlo.compare LT, %a, %a, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
        '%0 = "stablehlo.compare"(%a, %a) {comparison_direction = #stablehlo<comparison_direction LT>, '
        "compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
        '%0 = "stablehlo.compare"(%a, %a) {comparison_direction = "LT", compare_type = "FLOAT"} '
        ": (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
    ],
    "abbreviated types": [
        "%0 = stablehlo.add %a, %a : tensor<2x3xf32>",
        "%0 = stablehlo.add %a, %a : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        '%0 = "stablehlo.add"(%a, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>)',
    ],
    "slices": [
        "%0 = stablehlo.slice %a [0:2, 1:3:2] : (tensor<2x3xf32>) -> tensor<2x1xf32>",
        '%0 = "stablehlo.slice"(%a) {start_indices = array<i64: 0, 1>, limit_indices = array<i64: 2, 3>, '
        "strides = array<i64: 1, 2>} : (tensor<2x3xf32>) -> tensor<2x1xf32>",
    ],
    "reductions": [
        "%0 = stablehlo.reduce(%a init: %s) applies stablehlo.add across dimensions = [1] "
        ": (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>",
        "%0 = stablehlo.reduce(%a init: %s) across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>\n"
        "reducer(%x: tensor<f32>, %y: tensor<f32>) { %z = stablehlo.add %x, %y : tensor<f32> "
        "stablehlo.return %z : tensor<f32> }",
        '%0 = "stablehlo.reduce"(%a, %s) <{dimensions = array<i64: 1>}> ({^bb0(%x: tensor<f32>, %y: tensor<f32>): '
        "%z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32>}) "
        ": (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>",
    ],
    "dots": [
        "%0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1], precision = [DEFAULT, HIGH] "
        ": (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
        '%0 = "stablehlo.dot_general"(%a, %a) {dot_dimension_numbers = #stablehlo.dot<rhs_contracting_dimensions = [1], '
        "lhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]} "
        ": (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
    ],
    "convolutions": [
        "%0 = stablehlo.convolution(%i, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {"
        "stride = [2, 2], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x9x9x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x5x5x4xf32>",
        f'%0 = "stablehlo.convolution"(%i, %k) {{dimension_numbers = {CONV}, window_strides = array<i64: 2, 2>, '
        "padding = dense<1> : tensor<2x2xi64>, batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x9x9x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x5x5x4xf32>",
        '%0 = "stablehlo.convolution"(%i, %k) {dimension_numbers = #stablehlo.conv<raw input_batch_dimension = 0, '
        "input_feature_dimension = 3, input_spatial_dimensions = [1, 2], kernel_input_feature_dimension = 2, "
        "kernel_output_feature_dimension = 3, kernel_spatial_dimensions = [0, 1], output_batch_dimension = 0, "
        "output_feature_dimension = 3, output_spatial_dimensions = [1, 2]>, window_strides = array<i64: 2, 2>, "
        "padding = dense<[[1, 1], [1, 1]]> : tensor<2x2xi64>, batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x9x9x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x5x5x4xf32>",
    ],
    "windows of empty lists": [
        f"%0 = stablehlo.convolution(%i, %k) dim_numbers = {CONV[16:-1]}, window = {{{window}}} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x9x9x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x7x7x4xf32>"
        for window in ("", "stride = [], pad = [], lhs_dilate = [], rhs_dilate = [], reverse = []")
    ],
    "constants": [
        "%0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>",
        "%0 = stablehlo.constant() {value = dense<[1, 2]> : tensor<2xi32>} : () -> tensor<2xi32>",
        "%0 = stablehlo.constant() <{value = dense<[1, 2]> : tensor<2xi32>}> : () -> tensor<2xi32>",
        '%0 = "stablehlo.constant"() {value = dense<[1, 2]> : tensor<2xi32>} : () -> tensor<2xi32>',
    ],
    "custom calls": [
        '%0 = stablehlo.custom_call @t.x(%a) {backend_config = "a\\0A"} : (tensor<2x3xf32>) -> tensor<2xf32>',
        '%0 = "stablehlo.custom_call"(%a) {backend_config = "a\\n", call_target_name = "t.x"} '
        ": (tensor<2x3xf32>) -> tensor<2xf32>",
    ],
    "complex numbers": [
        "%0 = stablehlo.complex %a, %a : tensor<2x3xcomplex<f32>>",
        "%0 = stablehlo.complex %a, %a : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xcomplex<f32>>",
    ],
    "tuples and barriers": [
        "%0 = stablehlo.tuple %a, %s : tuple<tensor<2x3xf32>, tensor<f32>>\n"
        "%1:2 = stablehlo.optimization_barrier %a, %s : tensor<2x3xf32>, tensor<f32>\n"
        "stablehlo.optimization_barrier()",
        '%0 = "stablehlo.tuple"(%a, %s) : (tensor<2x3xf32>, tensor<f32>) -> tuple<tensor<2x3xf32>, tensor<f32>>\n'
        '%1, %2 = "stablehlo.optimization_barrier"(%a, %s) '
        ": (tensor<2x3xf32>, tensor<f32>) -> (tensor<2x3xf32>, tensor<f32>)\n"
        '"stablehlo.optimization_barrier"() : () -> ()',
    ],
    "formats": [
        "%0 = stablehlo.reduce_precision %a, format = e5m10 : tensor<2x3xf32>",
        '%0 = "stablehlo.reduce_precision"(%a) {exponent_bits = 5 : i32, mantissa_bits = 10 : i32} '
        ": (tensor<2x3xf32>) -> tensor<2x3xf32>",
    ],
    "selections": [
        "%0 = stablehlo.select %p, %a, %a : tensor<i1>, tensor<2x3xf32>",
        "%0 = stablehlo.select %p, %a, %a : (tensor<i1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
    ],
    "composites": [
        '%0 = stablehlo.composite "my.op" %a {composite_attributes = {n = 1 : i32}, decomposition = @d, version = 2 : i32} '
        ": (tensor<2x3xf32>) -> tensor<2x3xf32>",
        '%0 = "stablehlo.composite"(%a) {name = "my.op", composite_attributes = {n = 1 : i32}, decomposition = @d, '
        "version = 2 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
    ],
}


def program(body: str) -> spmd.Module:
    arguments = "%a: tensor<2x3xf32>, %s: tensor<f32>, %p: tensor<i1>, %i: tensor<2x9x9x3xf32>, %k: tensor<3x3x3x4xf32>"
    return parse(f"func.func @f({arguments}) {{\n{body}\nreturn\n}}")


@pytest.mark.parametrize("spellings", SAME.values(), ids=SAME.keys())
def test_all_spellings_are_one_program(spellings: list[str]) -> None:
    first, *others = map(program, spellings)
    assert [difference(first, other) for other in others] == [None] * len(others)
    assert {print_op(other) for other in (first, *others)} == {print_op(first)}


@pytest.mark.parametrize("spelling", [spelling for spellings in SAME.values() for spelling in spellings])
@pytest.mark.parametrize("generic", [False, True])
def test_what_is_printed_is_the_same_program(spelling: str, generic: bool) -> None:
    module = program(spelling)
    again = parse(print_op(module, generic=generic))
    assert difference(module, again) is None


def test_programs_that_differ_are_told_apart() -> None:
    one = program("%0 = stablehlo.subtract %a, %a : tensor<2x3xf32>")
    for other in (
        "%0 = stablehlo.add %a, %a : tensor<2x3xf32>",
        "%0 = stablehlo.subtract %a, %a {x} : tensor<2x3xf32>",
        "%1 = stablehlo.negate %a : tensor<2x3xf32> %0 = stablehlo.subtract %a, %1 : tensor<2x3xf32>",
    ):
        assert difference(one, program(other)) is not None
    zero, negative = (program(f"%0 = stablehlo.constant dense<{x}> : tensor<f32>") for x in ("0.0", "-0.0"))
    assert difference(zero, negative) is not None


def test_every_form_compiles() -> None:
    """A form that names what its op does not declare is a defect of the declaration."""
    assert sum(assembly_format(definition) is not None for definition in OPS.values()) > 200


def test_unknown_ops_and_attributes_are_kept() -> None:
    text = """
    module attributes {a.b = #some.thing<x, [1]>, c = !other.type<"y">} {
      func.func @f(%a: i1) {
        %0:2 = "x.y"(%a)[^bb1] ({
        ^bb0(%b: i1):
          "x.z"(%b) : (i1) -> ()
        }, {
        }) {unit, m = affine_map<(d0) -> (d0 + 1)>} : (i1) -> (i1, !t.u)
        "x.w"() : () -> ()
      ^bb1:
        return
      }
    }
    """
    module = parse(text)
    for generic in (False, True):
        printed = print_op(module, generic=generic)
        assert difference(module, parse(printed)) is None
        for kept in ("#some.thing<x, [1]>", '!other.type<"y">', "[^bb1]", "affine_map<(d0) -> (d0 + 1)>"):
            assert kept in printed


def test_value_names() -> None:
    text = 'func.func @f(%x: i1) -> i1 {\n  %y:2 = "a.b"(%x) : (i1) -> (i1, i1)\n  return %y#1 : i1\n}'
    module = parse(text)
    assert "%arg0: i1" in print_op(module) and "%0:2 =" in print_op(module) and "return %0#1" in print_op(module)
    kept = print_op(module, keep_names=True)
    assert "%x: i1" in kept and "%y:2 =" in kept and "return %y#1" in kept


def test_names_that_meet_are_made_different() -> None:
    module = parse(
        'func.func @f(%x: i1) {\n  %y = "a.b"(%x) : (i1) -> i1\n  "a.c"(%y, %x) : (i1, i1) -> ()\n  return\n}'
    )
    module.functions[0].body.ops[0].result.name_hint = "x"
    again = parse(print_op(module, keep_names=True))
    assert difference(module, again) is None


def test_a_long_constant_prints_as_its_bytes() -> None:
    short, long = (program(f"%0 = stablehlo.constant dense<{list(range(n))}> : tensor<{n}xi8>") for n in (100, 101))
    assert "dense<[0, 1, 2" in print_op(short)
    assert 'dense<"0x000102' in print_op(long)


def test_debug_locations_are_spelled_out() -> None:
    module = parse(
        'func.func @f() {\n  "a.b"() : () -> () loc(#loc1)\n  return\n}\n#loc = loc("f.py":1:2)\n#loc1 = loc("x"(#loc))'
    )
    assert module.functions[0].body.ops[0].debug_location == '"x"("f.py":1:2)'


def test_the_count_of_results_may_stand_apart() -> None:
    text = (
        "func.func @f(%a: tensor<f32>) -> tensor<f32> {\n"
        '  %0 :2 = "stablehlo.optimization_barrier"(%a, %a) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)\n'
        "  return %0#1 : tensor<f32>\n}"
    )
    assert parse(text).functions[0].body.ops[1].operands[0].index == 1


@pytest.mark.parametrize(
    "text",
    [
        "module {\n}\n",
        "module @empty attributes {mhlo.num_replicas = 1 : i32} {\n}\n",
        "module {\n  module @inner {\n  }\n}\n",
        '"builtin.module"() ({\n^bb0:\n}) : () -> ()\n',
    ],
)
def test_an_empty_module_prints_as_it_was(text: str) -> None:
    generic = text.startswith('"')
    assert print_op(parse(text), generic=generic) == text
    assert print_op(parse(print_op(parse(text), generic=not generic)), generic=generic) == text
