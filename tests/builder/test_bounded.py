"""Ops on bounded dimensions: what each makes of the elements that are there is what it makes of arrays of that size.

Source: XLA operation semantics, "SetDimensionSize": padded values are ignored downstream; StableHLO, "Bounded
dynamism".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.builder import Shape, XlaBuilder, XlaComputation, XlaOp, ops
from spmd.builder.hlo import print_hlo
from spmd.ir import Module
from tests.builder.support import scalars

BOUND = 6
ADD = scalars("add", ["f32", "f32"], lambda a, b: a + b)
TAKE = scalars("take", ["f32", "f32"], lambda a, b: b)
GREATER = scalars("greater", ["f32", "f32"], lambda a, b: ops.Ge(a, b))


@dataclass(frozen=True)
class Case:
    """`write(n, *operands)` makes the result, `n` the size or the bound of what is bounded.

    `shapes` are the operands' shapes; "n" is a bounded dimension, "N" a static one of that size, which in the program
    of static sizes is as large as what is bounded.
    """

    write: Callable[..., XlaOp]
    shapes: tuple[tuple[int | str, ...], ...] = (("n", 3),)
    dtypes: str = ""
    sizes: tuple[int, ...] = (0, 1, 4, BOUND)


def _scalar(x: XlaOp, value: float) -> XlaOp:
    return x.builder.Constant(np.float32(value))


def _row(x: XlaOp, values: Sequence[float]) -> XlaOp:
    return x.builder.Constant(np.asarray(values, np.float32))


def _ints(x: XlaOp, values: Any) -> XlaOp:
    return x.builder.Constant(np.asarray(values, np.int32))


def _zero(x: XlaOp) -> XlaOp:
    return _scalar(x, 0)


N3, S3 = ("n", 3), ("N", 3)
BINARY = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Rem",
    "Pow",
    "Max",
    "Min",
    "Atan2",
    "Complex",
    "Eq",
    "Ne",
    "Ge",
    "Gt",
    "Le",
    "Lt",
)
BITWISE = ("And", "Or", "Xor", "ShiftLeft", "ShiftRightArithmetic", "ShiftRightLogical")
UNARY = ("Exp", "Neg", "Abs", "Sign", "Tanh", "Floor", "IsFinite", "Cos", "Logistic")


def _gather(x: XlaOp, indices: XlaOp, sizes: Sequence[int], offset: Sequence[int]) -> XlaOp:
    return ops.Gather(x, indices, offset, [0], sizes, [0], 1)


def _scatter(x: XlaOp, indices: XlaOp, updates: XlaOp, window: Sequence[int]) -> XlaOp:
    return ops.Scatter(x, indices, updates, ADD, 1, window, [0], [0])


def _named(name: str) -> Callable[..., XlaOp]:
    return lambda *operands: getattr(ops, name)(*operands)


def _binary(name: str) -> dict[str, Case]:
    """A binary operation on a bounded array and another, on each side of it."""
    of = _named(name)
    return {
        f"{name} of two": Case(lambda n, a, b: of(a, b), (N3, N3)),
        f"{name} with a static one": Case(lambda n, a, b: of(a, b), (N3, S3)),
        f"{name} of a static one": Case(lambda n, a, b: of(a, b), (S3, N3)),
        f"{name} with a scalar": Case(lambda n, a: of(a, _scalar(a, 2))),
        f"{name} of a scalar": Case(lambda n, a: of(_scalar(a, 2), a)),
        f"{name} with a row": Case(lambda n, a: of(a, _row(a, [1, 2, 3]), [1])),
        f"{name} with columns of 1": Case(lambda n, a: of(a, _row(a, [[1], [2]])), ((2, "n"),)),
    }


CASES: dict[str, Case] = {
    **{text: case for name in BINARY for text, case in _binary(name).items()},
    **{f"{name} of integers": Case(lambda n, a, b, f=name: _named(f)(a, b), (N3, S3), "ii") for name in BITWISE},
    **{name: Case(lambda n, a, f=name: _named(f)(a)) for name in UNARY},
    "select": Case(lambda n, a, b: ops.Select(ops.Gt(a, b), a, b), (N3, S3)),
    "select by a scalar": Case(lambda n, a, b: ops.Select(ops.Gt(_scalar(a, 1), _scalar(a, 0)), b, a), (N3, S3)),
    "clamp": Case(lambda n, a, b: ops.Clamp(_scalar(a, -0.5), a, b), (N3, S3)),
    "convert": Case(lambda n, a: ops.ConvertElementType(a, "s32")),
    "bitcast to narrower": Case(lambda n, a: ops.BitcastConvertType(a, "u8")),
    "reduce precision": Case(lambda n, a: ops.ReducePrecision(a, 3, 4)),
    "map": Case(lambda n, a, b: ops.Map([a, b], ADD), (N3, N3)),
    "transpose": Case(lambda n, a: ops.Transpose(a, [1, 0])),
    "reverse": Case(lambda n, a: ops.Rev(a, [0])),
    "reverse elsewhere": Case(lambda n, a: ops.Rev(a, [1])),
    "broadcast": Case(lambda n, a: ops.Broadcast(a, [2])),
    "broadcast in dim": Case(lambda n, a: ops.BroadcastInDim(a, [3, 2, n], [2, 0])),
    "broadcast a size of 1": Case(lambda n, a: ops.BroadcastInDim(a, [4, n], [0, 1]), ((1, "n"),)),
    "concatenate": Case(lambda n, a, b: ops.Concatenate([a, b, a], 0), (N3, (2, 3))),
    "concatenate along another": Case(lambda n, a, b: ops.Concatenate([b, a], 1), (N3, ("N", 2))),
    "pad": Case(lambda n, a: ops.Pad(a, _scalar(a, 7), [(1, 2, 1), (0, 1, 0)])),
    "pad by less": Case(lambda n, a: ops.Pad(a, _zero(a), [(-1, 1, 0), (0, 0, 0)])),
    "slice": Case(lambda n, a: ops.Slice(a, [min(1, n), 0], [min(5, n), 3], [1, 1]), sizes=(0, 1, 3, 4, 5, BOUND)),
    "slice by strides": Case(lambda n, a: ops.Slice(a, [min(1, n), 0], [n, 3], [2, 2])),
    "slice another dimension": Case(lambda n, a: ops.Slice(a, [0, 1], [n, 2])),
    "slice of one": Case(lambda n, a: ops.Slice(a, [2, 0], [3, 3]), sizes=(3, 4, BOUND)),
    "dynamic slice": Case(lambda n, a: ops.DynamicSlice(a, [_ints(a, 0), _ints(a, 1)], [n, 2])),
    "dynamic slice of one": Case(lambda n, a: ops.DynamicSlice(a, [_ints(a, 2), _ints(a, 0)], [1, 3]), sizes=(1, 4, 6)),
    "dynamic slice of two": Case(lambda n, a: ops.DynamicSlice(a, [_ints(a, 1), _ints(a, 0)], [2, 3]), sizes=(2, 4, 6)),
    "dynamic update slice": Case(lambda n, a, b: ops.DynamicUpdateSlice(a, b, [_ints(a, 1), _ints(a, 2)]),
                                 (N3, (1, 1)), sizes=(1, 4, 6)),
    "dynamic update slice of all": Case(lambda n, a, b: ops.DynamicUpdateSlice(a, b, [_ints(a, 0), _ints(a, 1)]),
                                        (S3, ("n", 2)), sizes=(BOUND,)),
    "reshape to one": Case(lambda n, a: ops.Reshape(a, [3 * n])),
    "reshape in the middle": Case(lambda n, a: ops.Reshape(a, [4 * n, 2]), ((2, "n", 4),)),
    "reshape that splits another": Case(lambda n, a: ops.Reshape(a, [n, 2, 2]), (("n", 4),)),
    "reshape by a one": Case(lambda n, a: ops.Reshape(a, [1, n, 3, 1])),
    "reshape in another order": Case(lambda n, a: ops.Reshape(a, [1, 0], [3, n])),
    "collapse": Case(lambda n, a: ops.Collapse(a, [0, 1]), (("n", 3, 2),)),
    "sort": Case(lambda n, a: ops.Sort(a, dimension=0)),
    "sort of two": Case(lambda n, a, b: ops.GetTupleElement(ops.Sort([a, b], dimension=0), 1), (N3, S3)),
    "top k": Case(lambda n, a: ops.GetTupleElement(ops.TopK(a, 2), 0)),
    "reduce": Case(lambda n, a: ops.Reduce(a, _zero(a), ADD, [0])),
    "reduce another": Case(lambda n, a: ops.Reduce(a, _zero(a), ADD, [1])),
    "reduce all": Case(lambda n, a: ops.ReduceAll(a, _zero(a), ADD)),
    "reduce window": Case(lambda n, a: ops.ReduceWindow(a, _zero(a), ADD, [2, 1])),
    "reduce window by strides": Case(lambda n, a: ops.ReduceWindow(a, _zero(a), ADD, [2, 2], [2, 1],
                                                                   [(1, 0), (1, 1)])),
    "reduce window, dilated": Case(lambda n, a: ops.ReduceWindow(a, _zero(a), ADD, [2, 1], None, [(1, 1), (0, 0)],
                                                                 [2, 1], [2, 1])),
    "running sums": Case(lambda n, a: ops.ReduceWindow(a, _zero(a), ADD, [BOUND, 1], None, [(BOUND - 1, 0), (0, 0)])),
    "select and scatter": Case(
        lambda n, a, b: ops.SelectAndScatter(a, GREATER, [1, 2], [1, 1], [(0, 0), (0, 0)], b, _zero(a), ADD),
        (("n", 3), ("n", 2)),
    ),
    "dot": Case(lambda n, a, b: ops.Dot(a, b), (N3, (3, 2))),
    "dot of what is bounded": Case(lambda n, a, b: ops.Dot(a, b), ((2, "n"), ("N", 4))),
    "dot of two": Case(lambda n, a, b: ops.DotGeneral(a, b, (([0], [0]), ([1], [1]))), (N3, N3)),
    "dot by batches": Case(lambda n, a, b: ops.DotGeneral(a, b, (([1], [2]), ([0], [0]))), (N3, ("N", 2, 3))),
    "convolution of a bounded batch": Case(lambda n, a, b: ops.Conv(a, b, [1], "SAME"), (("n", 2, 5), (4, 2, 3))),
    "convolution of bounded features": Case(lambda n, a, b: ops.Conv(a, b, [1], "VALID"), ((2, "n", 5), (4, "N", 3)),
                                            sizes=(1, 4, 6)),
    "convolution along a bounded dimension": Case(
        lambda n, a, b: ops.ConvWithGeneralPadding(a, b, [2], [(1, 1)]), ((2, 3, "n"), (4, 3, 2))
    ),
    "convolution of a dilated image": Case(
        lambda n, a, b: ops.ConvWithGeneralPadding(a, b, [1], [(2, 1)], [2], [2]), ((2, 3, "n"), (4, 3, 2))
    ),
    "gather of rows": Case(lambda n, a, b: _gather(a, b, [1, 3], [1]), (N3, (4, 1)), "fi", sizes=(1, 4, 6)),
    "gather at bounded indices": Case(lambda n, a, b: _gather(a, b, [1, 3], [1]), ((4, 3), ("n", 1)), "fi"),
    "gather of bounded columns": Case(lambda n, a, b: _gather(a, b, [1, n], [1]), ((3, "n"), (4, 1)), "fi"),
    "scatter into rows": Case(lambda n, a, b, c: _scatter(a, b, c, [1]), (N3, (4, 1), (4, 3)), "fif"),
    "scatter at bounded indices": Case(lambda n, a, b, c: _scatter(a, b, c, [1]), ((4, 3), ("n", 1), ("N", 3)), "fif"),
    "scatter of bounded columns": Case(lambda n, a, b, c: _scatter(a, b, c, [1]), ((3, "n"), (4, 1), (4, "N")), "fif"),
    "arithmetic of two dimensions": Case(lambda n, a, b: ops.Mul(ops.Add(a, b), a), (("n", "n"), ("N", "N"))),
    "reduce both dimensions": Case(lambda n, a: ops.ReduceAll(a, _zero(a), ADD), (("n", 2, "n"),)),
    "transpose two dimensions": Case(lambda n, a: ops.Transpose(a, [2, 0, 1]), (("n", 2, "n"),)),
    "reshape two dimensions": Case(lambda n, a: ops.Reshape(a, [n, 1, n, 3]), (("n", "n", 3),)),
    "reshape two dimensions to one": Case(lambda n, a: ops.Reshape(a, [n * n]), (("n", "n"),)),
    "broadcast two dimensions": Case(lambda n, a: ops.BroadcastInDim(a, [n, 2, n], [0, 2]), (("n", "n"),)),
    "dot of two dimensions": Case(lambda n, a, b: ops.Dot(a, b), (("n", "n"), ("n", "n"))),
    "concatenate two dimensions": Case(lambda n, a, b: ops.Concatenate([a, b], 1), (("n", "n"), ("N", 2))),
    "size": Case(lambda n, a: ops.GetDimensionSize(ops.Add(a, a), 0)),
    "chain": Case(lambda n, a, b: ops.Reduce(ops.Mul(ops.Exp(ops.Sub(a, b)), ops.Rev(a, [0])), _zero(a), ADD, [0]),
                  (N3, S3)),
}  # fmt: skip


def _arrays(case: Case, size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The operands of the bounded program, static ones whole, and those of the program of static sizes."""
    generator = np.random.default_rng(7)
    bounded, static = [], []
    for shape, kind in zip(case.shapes, case.dtypes or "f" * len(case.shapes), strict=True):
        whole = [BOUND if isinstance(extent, str) else extent for extent in shape]
        array = generator.integers(-3, 6, whole) if kind == "i" else generator.standard_normal(whole)
        array = array.astype({"i": np.int32, "f": np.float32}[kind])
        there = array[tuple(slice(size if isinstance(extent, str) else None) for extent in shape)]
        bounded.append(there if "n" in shape else array)
        static.append(there)
    return bounded, static


def _computation(case: Case, arrays: Sequence[np.ndarray], size: int, *, bounded: bool) -> XlaComputation:
    builder = XlaBuilder("bounded" if bounded else "static")
    operands = []
    for number, (shape, array) in enumerate(zip(case.shapes, arrays, strict=True)):
        sizes = [(BOUND if bounded else size) if isinstance(extent, str) else extent for extent in shape]
        dynamic = [bounded and extent == "n" for extent in shape]
        operands.append(builder.Parameter(number, Shape.array_shape(array.dtype, sizes, None, dynamic), f"x{number}"))
    return builder.Build(case.write(BOUND if bounded else size, *operands))


def _again(module: Module, computation: XlaComputation) -> dict[str, Module]:
    """The program as it is written and read back, in each form."""
    return {
        "text": spmd.parse(str(module)),
        "generic text": spmd.parse(module.to_string(generic=True)),
        "bytecode": spmd.parse(spmd.serialize(module)),
        "HLO": spmd.parse(computation.as_hlo_text(), "bounded.hlo"),
    }


@pytest.mark.sampled(38)
@pytest.mark.parametrize("name", CASES)
def test_an_op_works_on_the_elements_that_are_there(name: str) -> None:
    case = CASES[name]
    computation = _computation(case, _arrays(case, BOUND)[0], BOUND, bounded=True)
    module = computation.to_stablehlo()
    spmd.verify(module)
    programs = {"numpy": spmd.compile(module, backends=("numpy",)), "llvm": spmd.compile(module)}
    programs |= {form: spmd.compile(again) for form, again in _again(module, computation).items()}
    for size in case.sizes:
        arrays, there = _arrays(case, size)
        static = _computation(case, there, size, bounded=False).to_stablehlo()
        (want,) = spmd.compile(static)(*there)
        for form, program in programs.items():
            (got,) = program(*arrays)
            assert got.dtype == want.dtype and got.shape == want.shape, (form, size, got.shape, want.shape)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"{form}, size {size}")


#: By file text: a program of s32[6] and a size, and what it gives of [1, ..., 6] by size. Its padding is zeros.
HLO = """HloModule m
add {{ a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = s32[] add(a, b) }}
double {{ a = s32[<=6] parameter(0)
  ROOT s = s32[<=6] add(a, a) }}
negate {{ a = s32[<=6] parameter(0)
  ROOT s = s32[<=6] negate(a) }}
with_static {{ a = s32[<=6] parameter(0)
  b = s32[6] parameter(1)
  ROOT s = s32[<=6] add(a, b) }}
ENTRY main {{
  p = s32[6] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  whole = s32[] constant(6)
  is_more = pred[] compare(n, two), direction=GT
  d = s32[<=6] set-dimension-size(p, n), dimensions={{0}}
  {body}
}}"""
PROGRAMS: dict[str, tuple[str, dict[int, Any]]] = {
    "slice": ("ROOT s = s32[<=3] slice(d), slice={[2:5]}", {0: [], 2: [], 3: [3], 4: [3, 4], 6: [3, 4, 5]}),
    "slice of one element": ("ROOT s = s32[1] slice(d), slice={[4:5]}", {0: [0], 4: [0], 5: [5]}),
    "slice that stays bounded": ("ROOT s = s32[<=1] slice(d), slice={[4:5]}", {0: [], 4: [], 5: [5]}),
    "slice that says to be static": ("ROOT s = s32[3] slice(d), slice={[2:5]}", {0: [0, 0, 0], 4: [3, 4, 0]}),
    "dynamic slice": ("ROOT s = s32[<=3] dynamic-slice(d, two), dynamic_slice_sizes={3}", {2: [1, 2], 6: [3, 4, 5]}),
    "static reshape": ("ROOT s = s32[2,3] reshape(d)", {0: [[0] * 3] * 2, 4: [[1, 2, 3], [4, 0, 0]]}),
    "reshape": ("ROOT s = s32[<=2,3] reshape(d), inferred_dimension=0",
                {0: [], 3: [[1, 2, 3]], 6: [[1, 2, 3], [4, 5, 6]]}),
    "reshape to columns": ("ROOT s = s32[2,<=3] reshape(d), inferred_dimension=1",
                           {2: [[1], [2]], 4: [[1, 2], [3, 4]]}),
    "growth": ("ROOT s = s32[6] set-dimension-size(d, whole), dimensions={0}", {0: [0] * 6, 4: [1, 2, 3, 4, 0, 0]}),
    "conditional": ("ROOT s = s32[<=6] conditional(is_more, d, d), true_computation=double, false_computation=negate",
                    {0: [], 2: [-1, -2], 3: [2, 4, 6]}),
    "call": ("ROOT s = s32[<=6] call(d, p), to_apply=with_static", {0: [], 2: [2, 4], 6: [2, 4, 6, 8, 10, 12]}),
    "fusion": ("ROOT s = s32[<=6] fusion(d, p), kind=kLoop, calls=with_static", {1: [2], 2: [2, 4]}),
    "top k": ("t = (s32[2], s32[2]) topk(d), k=2, largest=true\n  ROOT s = s32[2] get-tuple-element(t), index=0",
              {1: [1, 0], 4: [4, 3]}),
    "all_reduce": ("ROOT s = s32[<=6] all-reduce(d), replica_groups={{0}}, to_apply=add", {0: [], 2: [1, 2]}),
}  # fmt: skip


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)], ids=lambda names: names[0])
def test_padding_is_zeros_where_a_type_asks_for_it(name: str, backends: tuple[str, ...]) -> None:
    body, wanted = PROGRAMS[name]
    module = spmd.parse(HLO.format(body=body), "padded.hlo")
    programs = [module, spmd.parse(print_hlo(module), "again.hlo"), spmd.parse(str(module))]
    for program in [spmd.compile(each, backends=backends) for each in programs]:
        for size, want in wanted.items():
            (got,) = program(np.arange(1, 7, dtype=np.int32), np.int32(size))
            assert got.tolist() == want, (size, got.tolist())


SUM_OF_TWO = """func.func @main(%a: tensor<?xf32, #stablehlo.bounds<6>>, %b: tensor<?xf32, #stablehlo.bounds<6>>)
    -> tensor<?xf32, #stablehlo.bounds<6>> {
  %r = stablehlo.add %a, %b : tensor<?xf32, #stablehlo.bounds<6>>
  return %r : tensor<?xf32, #stablehlo.bounds<6>>
}"""


def test_sizes_that_go_together_are_equal_or_one() -> None:
    program = spmd.compile(spmd.parse(SUM_OF_TWO, name="sum.mlir"))
    one, three, four = (np.ones(size, np.float32) for size in (1, 3, 4))
    assert [program(*pair)[0].shape for pair in ((three, three), (one, three), (three, one))] == [(3,)] * 3
    with pytest.raises(spmd.ExecutionError, match=r"sum\.mlir:3:8.*dimensions must have equal sizes, got 3, 4"):
        program(three, four)


def test_a_static_result_that_is_not_filled_is_refused() -> None:
    text = """func.func @main(%a: tensor<?xf32, #stablehlo.bounds<6>>, %b: tensor<6xf32>) -> tensor<6xf32> {
      %r = stablehlo.add %a, %b : (tensor<?xf32, #stablehlo.bounds<6>>, tensor<6xf32>) -> tensor<6xf32>
      return %r : tensor<6xf32>
    }"""
    program = spmd.compile(spmd.parse(text))
    whole = np.ones(6, np.float32)
    assert program(whole, whole)[0].tolist() == [2] * 6
    with pytest.raises(spmd.ExecutionError, match=r"the result must be of type tensor<6xf32>, got shape \(3,\)"):
        program(whole[:3], whole)


def test_elements_that_do_not_fill_rows_are_refused() -> None:
    module = spmd.parse(HLO.format(body=PROGRAMS["reshape"][0]), "rows.hlo")
    with pytest.raises(spmd.ExecutionError, match="4 elements do not fill a result of type"):
        spmd.compile(module)(np.arange(6, dtype=np.int32), np.int32(4))


def test_a_stack_is_emptied_in_a_loop() -> None:
    """The last element is read, and the dimension shrinks."""
    type = "tensor<?xi32, #stablehlo.bounds<6>>"
    text = f"""func.func @main(%x: tensor<6xi32>, %n: tensor<i32>) -> (tensor<i32>, tensor<i32>) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %d = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<6xi32>, tensor<i32>) -> {type}
      %w:2 = stablehlo.while(%b = %d, %s = %zero) : {type}, tensor<i32>
      cond {{
        %k = stablehlo.get_dimension_size %b, dim = 0 : ({type}) -> tensor<i32>
        %p = stablehlo.compare GT, %k, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %k = stablehlo.get_dimension_size %b, dim = 0 : ({type}) -> tensor<i32>
        %m = stablehlo.subtract %k, %one : tensor<i32>
        %e = stablehlo.dynamic_slice %b, %m, sizes = [1] : ({type}, tensor<i32>) -> tensor<1xi32>
        %v = stablehlo.reshape %e : (tensor<1xi32>) -> tensor<i32>
        %ten = stablehlo.constant dense<10> : tensor<i32>
        %t = stablehlo.multiply %s, %ten : tensor<i32>
        %u = stablehlo.add %t, %v : tensor<i32>
        %c = stablehlo.set_dimension_size %b, %m, dim = 0 : ({type}, tensor<i32>) -> {type}
        stablehlo.return %c, %u : {type}, tensor<i32>
      }}
      %r = stablehlo.get_dimension_size %w#0, dim = 0 : ({type}) -> tensor<i32>
      return %w#1, %r : tensor<i32>, tensor<i32>
    }}"""
    for backends in (("llvm", "numpy"), ("numpy",)):
        program = spmd.compile(spmd.parse(text), backends=backends)
        for size, want in ((0, 0), (1, 1), (4, 4321), (6, 654321)):
            total, left = program(np.arange(1, 7, dtype=np.int32), np.int32(size))
            assert (int(total), int(left)) == (want, 0)
