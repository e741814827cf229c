"""The builder itself: how operations are called, where errors come from, what Build makes."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import spmd
from spmd.builder import BuilderError, Shape, XlaBuilder, ops
from spmd.builder.xla_op import OPERATIONS
from tests.builder.support import build, equal, f32, run, sound


def test_the_three_ways_to_call_an_operation() -> None:
    b = XlaBuilder("three")
    x = ops.Parameter(b, 0, Shape("f32[2]"), "x")
    y = ops.Neg(b.Add(x, x))
    b.Tuple([y, ops.Mul(b, x, x), ops.Sub(lhs=y, rhs=x)])
    equal(run(b.Build(), f32([1, 2])), [f32([-2, -4]), f32([1, 4]), f32([-3, -6])])


def test_operations_without_operands_need_a_builder() -> None:
    with pytest.raises(TypeError, match=r"ReplicaId: no operand to take the builder from.*builder\.ReplicaId"):
        ops.ReplicaId()
    with pytest.raises(AttributeError, match="has no operation Frobnicate"):
        XlaBuilder("test").Frobnicate()
    assert "Add" in dir(XlaBuilder("test"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_documented(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation.__doc__
    assert "Source:" in operation.__doc__ or name in ("CollectiveBroadcast", "Index")
    assert "builder" not in inspect.signature(operation).parameters


def test_the_result_is_what_was_added_last() -> None:
    b = XlaBuilder("last")
    x = b.Parameter(0, Shape("f32[]"))
    first = ops.Neg(x)
    ops.Exp(x)
    equal(run(b.Build(), f32(0)), 1)
    equal(run(b.Build(first), f32(2)), -2)
    b = XlaBuilder("parameter alone")
    b.Parameter(0, Shape("f32[]"))
    equal(run(b.Build(), f32(3)), 3)


def test_parameters_come_in_any_order() -> None:
    b = XlaBuilder("order")
    y = b.Parameter(1, Shape("s32[]"), "y")
    x = b.Parameter(0, Shape("f32[]"), "x")
    b.Tuple([y, x])
    computation = b.Build()
    assert str(computation.program_shape()) == "(f32[], s32[]) -> (s32[], f32[])"
    assert computation.program_shape().parameter_names == ("x", "y")
    equal(run(computation, f32(1), np.int32(2)), [np.int32(2), f32(1)])


def test_locations_are_python_lines() -> None:
    computation = build(lambda _, x: ops.Exp(x), f32(1))
    (op,) = (op for op in computation.to_stablehlo().walk() if op.name == "stablehlo.exponential")
    assert op.location.file.endswith("test_builder.py")
    source = inspect.getsource(test_locations_are_python_lines).splitlines()
    offset = next(i for i, line in enumerate(source) if "ops.Exp(x)" in line)
    assert op.location.line == inspect.getsourcelines(test_locations_are_python_lines)[1] + offset


def test_kept_errors_are_all_told_by_build() -> None:
    b = XlaBuilder("kept", die_immediately_on_error=False)
    x = b.Parameter(0, Shape("f32[2]"))
    bad = ops.Trans(x)
    assert repr(bad) == "<XlaOp of a failed operation>"
    after = bad + x
    assert not after.is_valid
    ops.Reshape(x, [3])
    with pytest.raises(BuilderError, match="Trans"):
        b.GetShape(after)
    assert b.first_error is not None
    assert b.first_error.op == "Trans"
    with pytest.raises(BuilderError) as caught:
        b.Build()
    assert [diagnostic.op for diagnostic in caught.value.diagnostics] == ["Trans", "Reshape"]
    assert isinstance(caught.value, spmd.VerificationError)


def test_a_result_is_flat_and_parameters_keep_their_names() -> None:
    b = XlaBuilder("names")
    x = b.Parameter(0, Shape("f32[2]"), "weights")
    b.Tuple([x, b.Tuple([x * 2.0, x[0]])])
    module = sound(b.Build())
    main = module.function("main")
    assert module.symbol == "names"
    assert [str(type) for type in main.type.results] == ["tensor<2xf32>", "tensor<2xf32>", "tensor<f32>"]
    assert "weights" in module.to_string(keep_names=True)
    assert not any(op.name == "stablehlo.tuple" for op in module.walk())


def test_a_computation_may_be_used_many_times_and_built_upon() -> None:
    square = build(lambda _, x: x * x, Shape("f32[]"), name="square")
    built = build(lambda _, x: ops.Map([ops.Map([x], square)], square), f32([0, 0]))
    equal(run(built, f32([2, 3])), [16, 81])
    b = XlaBuilder("twice")
    x = b.Parameter(0, Shape("f32[]"))
    y = x + 1.0
    first = b.Build()
    _ = y * 2.0
    second = b.Build()
    equal(run(first, f32(1)), 2)
    equal(run(second, f32(1)), 4)


def test_constants_are_known() -> None:
    b = XlaBuilder("constants")
    x = b.Parameter(0, Shape("f32[]"))
    one = b.ConstantR0(1.0)
    assert b.IsConstant(one + 2.0)
    assert b.IsConstant(b.RngUniform(one, one, Shape("f32[2]")))
    assert not b.IsConstant(one + x)
    assert not b.IsConstant(b.ReplicaId())
    choose = build(lambda _, x: x, Shape("f32[]"), name="choose")
    assert not b.IsConstant(ops.Conditional(b.ConstantR0(True), one, choose, x, choose))
