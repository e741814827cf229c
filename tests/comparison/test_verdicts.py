"""Planted faults are found and rounding passes: beside large and small elements, masks, long sums, cancellation."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import spmd

Replacement = tuple[str, str]


@dataclass(frozen=True)
class Program:
    """A program with its inputs, what may replace parts of it by mistake, and what means the same."""

    text: str
    shapes: tuple[tuple[int, ...], ...]
    faults: tuple[Replacement, ...] = ()
    same: tuple[Replacement, ...] = ()
    dtype: type = np.float32
    low: float = -2.0
    high: float = 2.0

    def inputs(self) -> list[np.ndarray]:
        random = np.random.default_rng(7)
        return [random.uniform(self.low, self.high, shape).astype(self.dtype) for shape in self.shapes]


ATTENTION = """func.func @main(%q: tensor<8x16xf32>, %k: tensor<8x16xf32>, %v: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %scale = stablehlo.constant dense<0.25> : tensor<8x8xf32>
  %far = stablehlo.constant dense<-1.0e9> : tensor<8x8xf32>
  %none = stablehlo.constant dense<0.0> : tensor<8x8xf32>
  %i = stablehlo.iota dim = 0 : tensor<8x8xi32>
  %j = stablehlo.iota dim = 1 : tensor<8x8xi32>
  %seen = stablehlo.compare GE, %i, %j : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
  %mask = stablehlo.select %seen, %none, %far : tensor<8x8xi1>, tensor<8x8xf32>
  %dot = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1]
    : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32>
  %scaled = stablehlo.multiply %dot, %scale : tensor<8x8xf32>
  %scores = stablehlo.add %scaled, %mask : tensor<8x8xf32>
  %most = stablehlo.reduce(%scores init: %least) applies stablehlo.maximum across dimensions = [1]
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %all = stablehlo.broadcast_in_dim %most, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
  %less = stablehlo.subtract %scores, %all : tensor<8x8xf32>
  %e = stablehlo.exponential %less : tensor<8x8xf32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %whole = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
  %p = stablehlo.divide %e, %whole : tensor<8x8xf32>
  %o = stablehlo.dot_general %p, %v, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  return %o : tensor<8x16xf32>
}"""
SCORES = (
    ATTENTION.replace("-> tensor<8x16xf32> {", "-> tensor<8x8xf32> {").split("  %most")[0]
    + "  return %scores : tensor<8x8xf32>\n}"
)
LONG_SUM = """func.func @main(%x: tensor<1000000xf32>, %y: tensor<4xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %c = stablehlo.constant dense<1.0> : tensor<1000000xf32>
  %s = stablehlo.multiply %x, %c : tensor<1000000xf32>
  %r = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<1000000xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}"""
REDUCED = """  %r = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<1000000xf32>, tensor<f32>) -> tensor<f32>"""
BY_ROWS = """  %m = stablehlo.reshape %s : (tensor<1000000xf32>) -> tensor<1000x1000xf32>
  %rows = stablehlo.reduce(%m init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<1000x1000xf32>, tensor<f32>) -> tensor<1000xf32>
  %r = stablehlo.reduce(%rows init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<1000xf32>, tensor<f32>) -> tensor<f32>"""
ELEMENTWISE = """func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %third = stablehlo.constant dense<0.333333343> : tensor<64xf32>
  %large = stablehlo.constant dense<1.0e6> : tensor<64xf32>
  %a = stablehlo.multiply %x, %third : tensor<64xf32>
  %b = stablehlo.subtract %a, %y : tensor<64xf32>
  %c = stablehlo.tanh %b : tensor<64xf32>
  %d = stablehlo.multiply %c, %x : tensor<64xf32>
  %r = stablehlo.add %d, %large : tensor<64xf32>
  return %r : tensor<64xf32>
}"""
THIRD = "%third = stablehlo.constant dense<0.333333343> : tensor<64xf32>"
ONE_OF_THREE = """%one = stablehlo.constant dense<1.0> : tensor<64xf32>
  %three = stablehlo.constant dense<3.0> : tensor<64xf32>
  %third = stablehlo.divide %one, %three : tensor<64xf32>"""
VARIANCE = """func.func @main(%x: tensor<512xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<512.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<512xf32>, tensor<f32>) -> tensor<f32>
  %mean = stablehlo.divide %s, %n : tensor<f32>
  %all = stablehlo.broadcast_in_dim %mean, dims = [] : (tensor<f32>) -> tensor<512xf32>
  %d = stablehlo.subtract %x, %all : tensor<512xf32>
  %q = stablehlo.multiply %d, %d : tensor<512xf32>
  %t = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<512xf32>, tensor<f32>) -> tensor<f32>
  %r = stablehlo.divide %t, %n : tensor<f32>
  return %r : tensor<f32>
}"""
ONE_PASS = """  %q = stablehlo.multiply %x, %x : tensor<512xf32>
  %t = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<512xf32>, tensor<f32>) -> tensor<f32>
  %u = stablehlo.divide %t, %n : tensor<f32>
  %m = stablehlo.multiply %mean, %mean : tensor<f32>
  %r = stablehlo.subtract %u, %m : tensor<f32>
  return %r : tensor<f32>
}"""
PRODUCTS = """func.func @main(%a: tensor<9x33xbf16>, %b: tensor<33x17xbf16>, %c: tensor<17x5xbf16>)
    -> tensor<9x5xbf16> {
  %ab = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<9x33xbf16>, tensor<33x17xbf16>) -> tensor<9x17xbf16>
  %rounded = stablehlo.floor %ab : tensor<9x17xbf16>
  %r = stablehlo.dot_general %ab, %c, contracting_dims = [1] x [0]
    : (tensor<9x17xbf16>, tensor<17x5xbf16>) -> tensor<9x5xbf16>
  return %r : tensor<9x5xbf16>
}"""
OTHERWISE = """  %bc = stablehlo.dot_general %b, %c, contracting_dims = [1] x [0]
    : (tensor<33x17xbf16>, tensor<17x5xbf16>) -> tensor<33x5xbf16>
  %r = stablehlo.dot_general %a, %bc, contracting_dims = [1] x [0]
    : (tensor<9x33xbf16>, tensor<33x5xbf16>) -> tensor<9x5xbf16>
  return %r : tensor<9x5xbf16>
}"""
COMPLEX = """func.func @main(%z: tensor<16xcomplex<f32>>, %w: tensor<16xcomplex<f32>>) -> tensor<16xcomplex<f32>> {
  %p = stablehlo.multiply %z, %w : tensor<16xcomplex<f32>>
  %q = stablehlo.divide %p, %w : tensor<16xcomplex<f32>>
  %r = stablehlo.exponential %q : tensor<16xcomplex<f32>>
  return %r : tensor<16xcomplex<f32>>
}"""
LOOP = """func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<30> : tensor<i32>
  %h = stablehlo.constant dense<0.01> : tensor<6xf32>
  %end, %r = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<6xf32>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.sine %y : tensor<6xf32>
    %d = stablehlo.multiply %s, %h : tensor<6xf32>
    %z = stablehlo.subtract %y, %d : tensor<6xf32>
    stablehlo.return %next, %z : tensor<i32>, tensor<6xf32>
  }
  return %r : tensor<6xf32>
}"""
NARROW = """func.func @main(%x: tensor<32xf16>) -> tensor<32xf16> {
  %scale = stablehlo.constant dense<0.35> : tensor<32xf16>
  %third = stablehlo.constant dense<0.3333> : tensor<32xf16>
  %s = stablehlo.multiply %x, %scale : tensor<32xf16>
  %t = stablehlo.tanh %s : tensor<32xf16>
  %r = stablehlo.multiply %t, %third : tensor<32xf16>
  return %r : tensor<32xf16>
}"""
OF_BFLOAT = NARROW.replace("f16", "bf16")
TIMES_THIRD = "  %r = stablehlo.multiply %t, %third : tensor<32xf16>"
OF_THREE = """  %three = stablehlo.constant dense<3.0> : tensor<32xf16>
  %r = stablehlo.divide %t, %three : tensor<32xf16>"""

PROGRAMS = {
    # The next number of a type of few digits is another constant, not the same one rounded.
    "narrow": Program(
        NARROW, ((32,),), (("0.35", "0.3503"), ("0.3333", "0.3336")), ((TIMES_THIRD, OF_THREE),), np.float16
    ),
    "narrower": Program(OF_BFLOAT, ((32,),), (("0.35", "0.3515"),), dtype=ml_dtypes.bfloat16),
    "attention": Program(
        ATTENTION,
        ((8, 16),) * 3,
        (
            ("dense<0.25>", "dense<0.250001>"),
            ("GE, %i, %j", "GT, %i, %j"),
            ("add %scaled, %mask", "add %dot, %mask"),
            ("dot_general %p, %v, contracting_dims = [1]", "dot_general %p, %v, contracting_dims = [0]"),
        ),
        (("exponential %less", "exponential %scores"),),
    ),
    "scores": Program(
        SCORES,
        ((8, 16),) * 3,
        (
            ("dense<0.25>", "dense<-7.0>"),
            ("dense<0.25>", "dense<0.2500003>"),
            ("add %scaled, %mask", "subtract %scaled, %mask"),
        ),
    ),
    "sum of a million": Program(
        LONG_SUM,
        ((1_000_000,), (4,)),
        (("dense<1.0>", "dense<1.000001>"), ("applies stablehlo.add", "applies stablehlo.maximum")),
        ((REDUCED, BY_ROWS),),
        low=0.0,
        high=1.0,
    ),
    "elementwise": Program(
        ELEMENTWISE,
        ((64,), (64,)),
        (
            ("subtract %a, %y", "subtract %y, %a"),
            ("dense<0.333333343>", "dense<0.3333337>"),
            ("tanh %b", "logistic %b"),
        ),
        (
            ("dense<0.333333343>", "dense<0.333333313>"),
            (THIRD, ONE_OF_THREE),
        ),
    ),
    "variance": Program(
        VARIANCE,
        ((512,),),
        (("subtract %x, %all", "add %x, %all"), ("dense<512.0>", "dense<511.9>")),
        (("multiply %d, %d", "multiply %d, %x"), (VARIANCE[VARIANCE.index("  %all") :], ONE_PASS)),
        low=99.0,
        high=101.0,
    ),
    "products": Program(
        PRODUCTS,
        ((9, 33), (33, 17), (17, 5)),
        (("dot_general %ab, %c", "dot_general %rounded, %c"),),
        ((PRODUCTS[PRODUCTS.index("  %ab") :], OTHERWISE),),
        ml_dtypes.bfloat16,
    ),
    "complex": Program(
        COMPLEX,
        ((16,), (16,)),
        (("divide %p, %w", "divide %p, %z"), ("exponential %q", "exponential %p")),
        (("exponential %q", "exponential %z"),),
        np.complex64,
    ),
    "loop": Program(
        LOOP,
        ((6,),),
        (("dense<0.01>", "dense<0.010001>"), ("sine %y", "tanh %y"), ("dense<30>", "dense<31>")),
    ),
}


def _cases(kind: str) -> list[object]:
    return [
        pytest.param(program, old, new, id=f"{name}-{number}")
        for name, program in PROGRAMS.items()
        for number, (old, new) in enumerate(getattr(program, kind))
    ]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("program", "old", "new"), _cases("faults"))
def test_a_planted_fault_is_found(program: Program, old: str, new: str) -> None:
    assert program.text.count(old) == 1
    left, right = spmd.parse(program.text), spmd.parse(program.text.replace(old, new))
    found = spmd.compare(left, right, program.inputs())
    assert not found and found.first is not None


@pytest.mark.parametrize(("program", "old", "new"), _cases("same"))
def test_what_means_the_same_is_equal(program: Program, old: str, new: str) -> None:
    assert program.text.count(old) == 1
    left, right = spmd.parse(program.text), spmd.parse(program.text.replace(old, new))
    found = spmd.compare(left, right, program.inputs())
    assert found, found


@pytest.mark.parametrize("name", PROGRAMS)
def test_back_ends_differ_by_rounding(name: str) -> None:
    found = spmd.compare(spmd.parse(PROGRAMS[name].text), inputs=PROGRAMS[name].inputs())
    assert found, found


def test_a_collective_of_several_operands_folds_each() -> None:
    text = """HloModule m, replica_count=2
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[3] parameter(0)
  y = f32[3] tanh(x)
  r = (f32[3], f32[3]) all-reduce(x, y), replica_groups={}, to_apply=sum
  a = f32[3] get-tuple-element(r), index=0
  b = f32[3] get-tuple-element(r), index=1
  ROOT c = f32[3] subtract(a, b)
}
"""
    module, grid = spmd.parse(text), spmd.ProcessGrid(2)
    found = spmd.compare(module, spmd.parse(text.replace("tanh(x)", "sine(x)")), grid=grid)
    assert not found.equal and "stablehlo.tanh at <string>:5:3" in str(found)
    assert spmd.compare(module, module, grid=grid).equal
