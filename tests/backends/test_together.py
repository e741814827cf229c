"""Programs that are compiled as one (tests.backends.together): each is scheduled, and gives, what it does alone."""

import re

import numpy as np
import pytest
from hypothesis import strategies as st

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import chosen_options
from spmd.compiler.schedule.text import schedule_text
from tests.backends.modules import dense, ints, main, monoid, op, pair_kept, type_of
from tests.backends.together import Cases, Program, drawn, for_numpy, joined, run_all, together

RNG = np.random.default_rng(0)
ROWS, COLUMNS = RNG.standard_normal((20, 7)).astype(np.float32), RNG.standard_normal((7, 20)).astype(np.float32)
ZERO = np.asarray(np.float32(0))


def program(text: str, arrays: list[np.ndarray], *results: tuple[str, tuple[int, ...]]) -> Program:
    return Program(op(text, arrays, *results), arrays)


SOFTMAX = f"""%z = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %0 : {type_of(ROWS)}
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1]
    : ({type_of(ROWS)}, tensor<f32>) -> tensor<20xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<20xf32>) -> {type_of(ROWS)}
  %r = stablehlo.divide %e, %b : {type_of(ROWS)}"""
LOOP = """%n = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %n, %x = %0) : tensor<i32>, tensor<20x7xf32>
    cond {
      %most = stablehlo.constant dense<5> : tensor<i32>
      %c = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.tanh %x : tensor<20x7xf32>
      stablehlo.return %j, %y : tensor<i32>, tensor<20x7xf32>
    }"""
SORT = f"""%n = stablehlo.iota dim = 1 : tensor<20x7xi32>
  %r:2 = "stablehlo.sort"(%0, %n) <{{dimension = 1 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
      %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }}) : ({type_of(ROWS)}, tensor<20x7xi32>) -> ({type_of(ROWS)}, tensor<20x7xi32>)"""
#: Of every form that is scheduled in a way of its own; two are the same, and many are over the same points.
PROGRAMS = [
    *[program('"stablehlo.exponential"(%0)', [ROWS], ("f32", (20, 7)))] * 2,
    program('"stablehlo.add"(%0, %1)', [ROWS, ROWS], ("f32", (20, 7))),
    program(f'"stablehlo.reduce"(%0, %1) {monoid("add", "f32")} {{dimensions = {ints([1])}}}', [ROWS, ZERO],
            ("f32", (20,))),
    program(f'"stablehlo.reduce"(%0, %1) {monoid("add", "f32")} {{dimensions = {ints([0])}}}', [ROWS, ZERO],
            ("f32", (7,))),
    program(f'"stablehlo.reduce"(%0, %1, %2, %3) {pair_kept("GT", "f32")} {{dimensions = {ints([1])}}}',
            [ROWS, np.zeros((20, 7), np.int32), ZERO, np.asarray(np.int32(0))], ("f32", (20,)), ("i32", (20,))),
    program(f'"stablehlo.reduce_window"(%0, %1) {monoid("maximum", "f32")} {{window_dimensions = {ints([3, 2])}, '
            f"padding = {dense([(1, 1), (0, 1)])}}}", [ROWS, ZERO], ("f32", (20, 7))),
    Program(main(SOFTMAX, [ROWS], f"%r : {type_of(ROWS)}"), [ROWS]),
    Program(main(LOOP, [ROWS], f"%r#1 : {type_of(ROWS)}"), [ROWS]),
    Program(main(SORT, [ROWS], f"%r#0, %r#1 : {type_of(ROWS)}, tensor<20x7xi32>"), [ROWS]),
    program('"stablehlo.dot"(%0, %1)', [ROWS, COLUMNS], ("f32", (20, 20))),
    program('"stablehlo.transpose"(%0) {permutation = array<i64: 1, 0>}', [ROWS], ("f32", (7, 20))),
    program('"stablehlo.fft"(%0) {fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 20>}', [COLUMNS],
            ("complex<f32>", (7, 11))),
    program('"stablehlo.torch_index_select"(%0, %1) {dim = 0 : i64, batch_dims = 0 : i64}',
            [ROWS, np.array([3, 19, -1, 3], np.int32)], ("f32", (4, 7))),
]  # fmt: skip


def steps(module: spmd.Module) -> list[str]:
    """The lines of the steps of a schedule, without numbers, where values lie, and whether a nest is outlined.

    The only nest of a program is not.
    """
    lowering = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {}))
    flat = lowering.flatten(module.function("main"))
    lines = schedule_text(lowering.schedule(flat.body), lowering.schedule).splitlines()
    plain = [re.sub(r"(%|\bstep )\d+|, outlined$", r"\1", line) for line in lines if line.strip()]
    return [line for line in plain if not line.startswith(("region", "    buffers"))]


def test_each_is_scheduled_as_it_is_alone() -> None:
    texts = [each.text for each in PROGRAMS]
    assert steps(joined(texts)) == [line for text in texts for line in steps(spmd.parse(text))]


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"backends": ("numpy",)}], ids=str)
def test_each_gives_what_it_gives_alone(options: dict[str, object]) -> None:
    programs = [Program(each.text, each.arrays, options) for each in PROGRAMS]
    for each, results in zip(programs, run_all(programs), strict=True):
        for got, want in zip(results, each.run(), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("sign", [1, -1])
@together
def test_a_case_is_sent_what_its_own_programs_give(size: int, sign: int) -> Cases:
    x = sign * np.arange(size, dtype=np.float32)
    negated = program('"stablehlo.negate"(%0)', [x], ("f32", (size,)))
    (once,), (again,) = yield negated, for_numpy(negated.text, x)
    (back,) = yield program('"stablehlo.negate"(%0)', [once], ("f32", (size,)))
    for got, want in ((once, -x), (again, -x), (back, x)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["negate", "abs"])
@together
@drawn(8, size=st.integers(1, 9), data=st.data())
def test_examples_are_sent_what_they_give(name: str, size: int, data: st.DataObject) -> Cases:
    x = np.full(size, data.draw(st.integers(-5, 5)), np.float32)
    (got,) = yield program(f'"stablehlo.{name}"(%0)', [x], ("f32", (size,)))
    np.testing.assert_array_equal(got, -x if name == "negate" else abs(x))


def test_an_example_that_fails_is_made_smaller() -> None:
    @drawn(50, size=st.integers(1, 9))
    def wrong(size: int) -> Cases:
        x = np.ones(size, np.float32)
        (got,) = yield program('"stablehlo.negate"(%0)', [x], ("f32", (size,)))
        assert got.sum() > -4, f"{size} elements"

    case = wrong()
    programs = next(case)
    with pytest.raises(AssertionError, match="4 elements"):
        case.send(run_all(programs))  # type: ignore[arg-type]
