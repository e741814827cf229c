"""Complex elements that are moved alone go whole; what is computed goes in parts. The bits stay."""

import numpy as np
import pytest

import spmd
from spmd.analysis.scalar.expression import F32, F64, I64
from spmd.compiler.schedule.units import nests_of
from tests.compiler.schedule.test_schedule import units_of

C64, C128 = "tensor<6x17xcomplex<f32>>", "tensor<6x17xcomplex<f64>>"
TURNED = "stablehlo.transpose %x, dims = [1, 0] : ({0}) -> {1}"


def program(line: str, operand: str, result: str) -> str:
    return f"func.func @main(%x: {operand}) -> {result} {{\n  %r = {line}\n  return %r : {result}\n}}"


CASES = [
    (TURNED, C64, "tensor<17x6xcomplex<f32>>", {I64}),
    (TURNED, C128, "tensor<17x6xcomplex<f64>>", {F64}),
    ("stablehlo.reverse %x, dims = [1] : {0}", C64, C64, {I64}),
    ("stablehlo.slice %x [0:6:2, 1:17:2] : ({0}) -> {1}", C64, "tensor<3x8xcomplex<f32>>", {I64}),
    ("stablehlo.concatenate %x, %x, dim = 1 : ({0}, {0}) -> {1}", C64, "tensor<6x34xcomplex<f32>>", {I64}),
    ("stablehlo.negate %x : {0}", C64, C64, {F32}),
    ("stablehlo.real %x : ({0}) -> {1}", C64, "tensor<6x17xf32>", {F32}),
]


@pytest.mark.parametrize(("line", "operand", "result", "types"), CASES)
def test_what_is_only_moved_is_not_taken_apart(line: str, operand: str, result: str, types: set[object]) -> None:
    text = program(line.format(operand, result), operand, result)
    (unit,) = units_of(text)
    assert {load.type for nest in nests_of(unit) for load in nest.loads()} == types
    parts = np.array([0.0, -0.0, np.nan, -np.inf, 1e-40, 3.5], np.float64)
    rng = np.random.default_rng(0)
    x = np.empty((6, 17), "c8" if operand is C64 else "c16")
    x.real, x.imag = rng.choice(parts, (2, 6, 17))
    (native,) = spmd.compile(spmd.parse(text))(x)
    (plain,) = spmd.compile(spmd.parse(text), backends=("numpy",))(x)
    assert native.tobytes() == plain.tobytes()
