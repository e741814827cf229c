"""What a module must keep beyond each op's constraints. Source: StableHLO specification, "Programs", "Functions"."""

from __future__ import annotations

import pytest

import spmd
from spmd.compiler.pipeline.verify import verify
from spmd.dialects import OPS
from spmd.errors import Diagnostic
from spmd.ir import Block, Op, Region, new_op
from spmd.types import F32, FunctionType, TensorType, Type

F32x2 = TensorType((2,), F32)


def _errors(text: str) -> list[Diagnostic]:
    with pytest.raises(spmd.VerificationError) as refused:
        spmd.parse(text, "program.mlir")
    return list(refused.value.diagnostics)


def _function(ops: list[Op], inputs: tuple[Type, ...] = (), results: tuple[Type, ...] = (), name: str = "f") -> Op:
    block = Block(inputs)
    block.ops = ops
    attributes = {"sym_name": name, "function_type": FunctionType(inputs, results)}
    return new_op("func.func", (), (), attributes, [Region([block])], definition=OPS["func.func"])


def _module(*ops: Op) -> Op:
    return new_op("builtin.module", (), (), {}, [Region([Block((), ops)])], definition=OPS["builtin.module"])


def _op(name: str, operands: list[object], results: list[Type], **attributes: object) -> Op:
    return Op(name, operands, results, dict(attributes), definition=OPS[name])  # type: ignore[arg-type]


def test_a_broken_constraint_names_place_op_label_and_values() -> None:
    (error,) = _errors(
        "func.func @f(%a: tensor<2x3xf32>, %b: tensor<4x5xf32>) {\n"
        '  %0 = "stablehlo.concatenate"(%a, %b) {dimension = 1 : i64} : (tensor<2x3xf32>, tensor<4x5xf32>) -> '
        "tensor<2x8xf32>\n  func.return\n}"
    )
    assert str(error).splitlines()[0] == (
        "program.mlir:2:8: stablehlo.concatenate: (C2) all inputs must have the same shape except along `dimension`, "
        "got 2x3 and 4x5 with dimension = 1"
    )


def test_all_errors_are_told_in_the_order_of_the_source() -> None:
    errors = _errors(
        "func.func @f(%a: tensor<2xf32>) {\n"
        '  %0 = "stablehlo.sqrt"(%a) : (tensor<2xf32>) -> tensor<3xf32>\n'
        '  %1 = "stablehlo.sqrt"(%a) : (tensor<2xf32>) -> tensor<2xf32>\n'
        '  %2 = "stablehlo.not"(%a) : (tensor<2xf32>) -> tensor<2xf32>\n'
        "  func.return\n}"
    )
    assert [(error.location.line, error.op, error.label) for error in errors] == [
        (2, "stablehlo.sqrt", "C1"),
        (4, "stablehlo.not", "I1"),
    ]


def test_equal_ops_are_each_refused() -> None:
    line = '  %{} = "stablehlo.sqrt"(%a) : (tensor<2xf32>) -> tensor<3xf32>\n'
    errors = _errors("func.func @f(%a: tensor<2xf32>) {\n" + line.format(0) + line.format(1) + "  func.return\n}")
    assert [error.location.line for error in errors] == [2, 3]


def test_results_may_be_declared_more_or_less_refined() -> None:
    spmd.parse(
        "func.func @f(%a: tensor<?x3xf32>, %b: tensor<2x3xf32>) {\n"
        "  %0 = stablehlo.sqrt %a : (tensor<?x3xf32>) -> tensor<2x3xf32>\n"
        "  %1 = stablehlo.sqrt %b : (tensor<2x3xf32>) -> tensor<?x?xf32>\n"
        "  %2 = stablehlo.sqrt %b : (tensor<2x3xf32>) -> tensor<?x3xf32, #stablehlo.bounds<4, ?>>\n"
        "  func.return\n}"
    )
    errors = _errors(
        "func.func @f(%b: tensor<2x3xf32>) {\n"
        "  %2 = stablehlo.sqrt %b : (tensor<2x3xf32>) -> tensor<?x3xf32, #stablehlo.bounds<1, ?>>\n  func.return\n}"
    )
    assert errors[0].label == "C1"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("func.func @f(%a: tensor<i1>) -> tensor<i8> {\n return %a : tensor<i1>\n}", "returned types must match"),
        ("func.func @f() {\n func.call @g() : () -> ()\n func.return\n}", "no function @g"),
        ("func.func private @f()\nfunc.func private @f()", "@f twice"),
        ("func.func @f()", "a declaration must be private"),
        ("module attributes {bare = 1 : i32} {}", "name their dialect, got bare"),
        ("func.func @f() {\n %0 = stablehlo.constant dense<1> : tensor<i32>\n}", "must end with func.return"),
        ("func.func @f(%a: tensor<f32> {bare = 1}) {\n return\n}", "name their dialect, got bare"),
        ("func.func private @f() -> (tensor<f32> {bare})", "name their dialect, got bare"),
        ("func.func @f(%a: tensor<f32>,) {\n return\n}", "expected an argument"),
        ("func.func private @f() -> (tensor<f32>,)", "expected a type"),
        (
            "func.func @f(%a: tensor<f32>) {\n %0 = func.call @g(%a) : (tensor<f32>) -> tensor<i32>\n func.return\n}\n"
            "func.func private @g(%a: tensor<f32>) -> tensor<f32>",
            "for @g, which is",
        ),
        ("func.func @f() {\n func.return\n func.return\n}", "a terminator must be the last op"),
        ("func.func @f() {\n func.func private @g()\n func.return\n}", "must be in a module"),
        ('func.func @f() {\n "stablehlo.sqrt"() : () -> ()\n func.return\n}', "expected 1 operand, got 0"),
        (
            'func.func @f(%a: tensor<f32>) {\n %0 = "stablehlo.transpose"(%a) : (tensor<f32>) -> tensor<f32>\n '
            "func.return\n}",
            "permutation",
        ),
        (
            'func.func @f(%a: tensor<i1>) {\n "stablehlo.if"(%a) ({stablehlo.return}) : (tensor<i1>) -> ()\n '
            "func.return\n}",
            "expected 2 regions, got 1",
        ),
        (
            'func.func @f(%a: tensor<i1>) {\n "stablehlo.if"(%a) ({stablehlo.return}, {}) : (tensor<i1>) -> ()\n '
            "func.return\n}",
            "region false_branch has one block",
        ),
    ],
)  # fmt: skip
def test_a_program_that_does_not_hold_together_is_refused(text: str, what: str) -> None:
    with pytest.raises(spmd.SpmdError) as refused:
        spmd.parse(text)
    assert what in str(refused.value)


def test_a_function_that_does_not_end_is_refused_where_it_stops() -> None:
    (error,) = _errors(
        "func.func @f(%a: tensor<f32>) {\n stablehlo.abs %a : tensor<f32>\n stablehlo.abs %a : tensor<f32>\n}"
    )
    assert error.location.line == 3


def test_ops_of_unknown_dialects_pass_and_what_is_inside_them_does_not() -> None:
    text = (
        'func.func @f(%a: tensor<2xf32>) {{\n "other.op"(%a) ({{\n {} \n}}) : (tensor<2xf32>) -> ()\n func.return\n}}'
    )
    spmd.parse(text.format("%0 = stablehlo.sqrt %a : tensor<2xf32>"))
    (error,) = _errors(text.format('%0 = "stablehlo.sqrt"(%a) : (tensor<2xf32>) -> tensor<3xf32>'))
    assert error.location.line == 3


def test_a_value_is_used_after_its_definition() -> None:
    first = _op("stablehlo.sqrt", [], [F32x2])
    second = _op("stablehlo.sqrt", [first.results[0]], [F32x2])
    first.operands = (second.result,)
    with pytest.raises(spmd.VerificationError, match="defined before its use"):
        verify(_module(_function([first, second, _op("func.return", [], [])])))


def test_a_value_does_not_leave_its_function() -> None:
    function = _function([], (F32x2,))
    argument = function.regions[0].block.arguments[0]
    function.regions[0].block.ops.append(_op("func.return", [], []))
    user = _function([_op("stablehlo.sqrt", [argument], [F32x2]), _op("func.return", [], [])], name="g")
    with pytest.raises(spmd.VerificationError, match="in scope"):
        verify(_module(function, user))


def test_a_sound_module_built_by_hand_is_accepted() -> None:
    function = _function([], (F32x2,), (F32x2,))
    block = function.regions[0].block
    root = _op("stablehlo.sqrt", [block.arguments[0]], [F32x2])
    block.ops = [root, _op("func.return", [root.results[0]], [])]
    verify(_module(function))


def test_shardings_are_judged_with_their_meshes_every_time() -> None:
    sharding = '{sdy.sharding = #sdy.sharding<@m, [{"x"}]>}'
    text = f'sdy.mesh @m = <["x"=2]>\nfunc.func @f(%a: tensor<4xf32> {sharding}) {{ return }}'
    for _ in range(2):
        spmd.parse(text)
        assert "y" in str(_errors(text.replace('{"x"}', '{"y"}'))[0])
    assert "m" in str(_errors(text.partition("\n")[2])[0])
