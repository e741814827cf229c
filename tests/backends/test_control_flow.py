"""Loops, branches, map and tuples; loops leave what is not theirs untouched."""

import numpy as np
import pytest

from tests.backends.modules import here, main, type_of


def test_while_carries_state_and_reads_what_is_outside() -> None:
    lines = """
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %x = %0) : tensor<i32>, tensor<3xf32>
      cond { %p = stablehlo.compare LT, %i, %2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1> }
      do { %one = stablehlo.constant dense<1> : tensor<i32>
        %n = stablehlo.add %i, %one : tensor<i32>
        %y = stablehlo.add %x, %1 : tensor<3xf32>
        stablehlo.return %n, %y : tensor<i32>, tensor<3xf32> }"""
    x, step = np.zeros(3, np.float32), np.arange(3, dtype=np.float32)
    for count in (0, 1, 7):
        arrays = (x, step, np.int32(count))
        n, y = here(main(lines, arrays, "%r#0, %r#1 : tensor<i32>, tensor<3xf32>"), *arrays)
        assert int(n) == count
        assert y.tolist() == [0, count, 2 * count]
    assert not x.any()


def test_a_loop_that_stores_into_what_it_carries() -> None:
    """Two carried arrays change places while one is written into: the arguments, and each other, stay whole."""
    lines = """
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:3 = stablehlo.while(%i = %zero, %x = %0, %y = %1) : tensor<i32>, tensor<5xf32>, tensor<5xf32>
      cond { %five = stablehlo.constant dense<5> : tensor<i32>
        %p = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1> }
      do { %one = stablehlo.constant dense<1> : tensor<i32>
        %n = stablehlo.add %i, %one : tensor<i32>
        %s = stablehlo.dynamic_slice %y, %i, sizes = [1] : (tensor<5xf32>, tensor<i32>) -> tensor<1xf32>
        %z = stablehlo.dynamic_update_slice %x, %s, %i : (tensor<5xf32>, tensor<1xf32>, tensor<i32>) -> tensor<5xf32>
        stablehlo.return %n, %y, %z : tensor<i32>, tensor<5xf32>, tensor<5xf32> }"""
    x, y = np.arange(5, dtype=np.float32), np.arange(10, 15, dtype=np.float32)
    results = here(main(lines, (x, y), "%r#1, %r#2 : tensor<5xf32>, tensor<5xf32>"), x, y)
    a, b = x.copy(), y.copy()
    for index in range(5):
        c = a.copy()
        c[index] = b[index]
        a, b = b, c
    np.testing.assert_array_equal(results, [a, b])
    assert x.tolist() == [0, 1, 2, 3, 4]
    assert y.tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 3, 100])
def test_case_takes_the_last_branch_for_an_index_out_of_range(index: int) -> None:
    branches = ", ".join(
        f"{{ %c{k} = stablehlo.constant dense<{k}> : tensor<i32>\nstablehlo.return %c{k} : tensor<i32> }}"
        for k in range(3)
    )
    lines = f'%r = "stablehlo.case"(%0) ({branches}) : (tensor<i32>) -> tensor<i32>'
    (got,) = here(main(lines, [np.int32(index)], "%r : tensor<i32>"), np.int32(index))
    assert int(got) == (index if 0 <= index < 3 else 2)


@pytest.mark.parametrize("predicate", [True, False])
def test_if_gives_the_results_of_one_branch(predicate: bool) -> None:
    lines = """%r:2 = "stablehlo.if"(%0) ({ stablehlo.return %1, %2 : tensor<2xf32>, tensor<2xf32> },
        { stablehlo.return %2, %1 : tensor<2xf32>, tensor<2xf32> }) : (tensor<i1>) -> (tensor<2xf32>, tensor<2xf32>)"""
    arrays = (np.bool_(predicate), np.zeros(2, np.float32), np.ones(2, np.float32))
    first, second = here(main(lines, arrays, "%r#0, %r#1 : tensor<2xf32>, tensor<2xf32>"), *arrays)
    assert first.tolist() == [not predicate] * 2
    assert second.tolist() == [predicate] * 2


@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_map_applies_its_region_to_each_element(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, y = np.asarray(x), np.asarray(x + 1)
    lines = f"""%r = "stablehlo.map"(%0, %1) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %m = stablehlo.multiply %a, %b : tensor<f32>
        stablehlo.return %m : tensor<f32>
      }}) {{dimensions = array<i64{": " if shape else ""}{", ".join(map(str, range(len(shape))))}>}}
        : ({type_of(x)}, {type_of(y)}) -> {type_of(x)}"""
    np.testing.assert_array_equal(here(main(lines, (x, y), f"%r : {type_of(x)}"), x, y)[0], x * y)


def test_tuples_barriers_tokens_and_composites() -> None:
    text = """
      func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
        %t = stablehlo.tuple %x, %x : tuple<tensor<2xf32>, tensor<2xf32>>
        %e = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2xf32>, tensor<2xf32>>) -> tensor<2xf32>
        %b:2 = stablehlo.optimization_barrier %e, %x : tensor<2xf32>, tensor<2xf32>
        %k = stablehlo.create_token : !stablehlo.token
        %l = stablehlo.after_all %k, %k : !stablehlo.token
        %c = stablehlo.composite "my.twice" %b#0 {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
        %d = func.call @twice(%c) : (tensor<2xf32>) -> tensor<2xf32>
        return %c, %d : tensor<2xf32>, tensor<2xf32>
      }
      func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
        %r = stablehlo.add %x, %x : tensor<2xf32>
        return %r : tensor<2xf32>
      }"""
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(here(text, x), [2 * x, 4 * x])


def test_a_loop_in_a_reduction() -> None:
    """A region whose body is a program of its own is applied to each pair of elements."""
    lines = """
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r = "stablehlo.reduce"(%0, %z) <{dimensions = array<i64: 1>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %w:2 = stablehlo.while(%i = %zero, %s = %a) : tensor<i32>, tensor<i32>
        cond { %p = stablehlo.compare LT, %i, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }
        do { %n = stablehlo.add %i, %one : tensor<i32>
          %t = stablehlo.add %s, %one : tensor<i32>
          stablehlo.return %n, %t : tensor<i32>, tensor<i32> }
        stablehlo.return %w#1 : tensor<i32>
      }) : (tensor<2x3xi32>, tensor<i32>) -> tensor<2xi32>"""
    x = np.array([[1, 2, 3], [0, 5, 1]], np.int32)
    np.testing.assert_array_equal(here(main(lines, [x], "%r : tensor<2xi32>"), x)[0], [6, 6])
