"""Short counted loops written out."""

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import Options
from spmd.types import ELEMENT_TYPES, storage_range


def loop(start: int = 0, bound: int = 3, step: int = 1, body: str = "stablehlo.multiply %x, %x") -> str:
    return f"""func.func @main(%a: tensor<2xi32>, %n: tensor<i32>) -> (tensor<i32>, tensor<2xi32>) {{
      %s = stablehlo.constant dense<{start}> : tensor<i32>
      %r:2 = stablehlo.while(%i = %s, %x = %a) : tensor<i32>, tensor<2xi32> cond {{
        %b = stablehlo.constant dense<{bound}> : tensor<i32>
        %p = stablehlo.compare LT, %i, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %d = stablehlo.constant dense<{step}> : tensor<i32>
        %y = {body} : tensor<2xi32>
        %j = stablehlo.add %d, %i : tensor<i32>
        stablehlo.return %j, %y : tensor<i32>, tensor<2xi32>
      }}
      return %r#0, %r#1 : tensor<i32>, tensor<2xi32>
    }}"""


def loops_left(text: str) -> int:
    module = spmd.parse(text)
    flat = ModuleLowering(module, Options()).flatten(module.function("main"))
    return sum(op.name == "stablehlo.while" for op in flat.walk())


@pytest.mark.parametrize(
    ("start", "bound", "step", "counter", "squarings"),
    [(0, 3, 1, 3, 3), (1, 6, 2, 7, 3), (4, 4, 1, 4, 0), (9, 4, 1, 9, 0)],
)
def test_a_counted_loop_runs_as_often_as_it_counts(
    start: int, bound: int, step: int, counter: int, squarings: int
) -> None:
    text = loop(start, bound, step)
    assert loops_left(text) == 0
    last, result = spmd.compile(spmd.parse(text))(np.int32([2, -3]), np.int32(0))
    assert last == counter
    with np.errstate(all="ignore"):
        want = np.int32([2, -3])
        for _ in range(squarings):
            want = want * want
    assert result.tolist() == want.tolist()


def test_long_loops_and_loops_that_count_up_to_a_value_stay() -> None:
    assert loops_left(loop(bound=100000)) == 1
    assert loops_left(loop(step=-1)) == 1
    unknown = loop().replace("LT, %i, %b", "LT, %i, %n")
    assert loops_left(unknown) == 1
    _, result = spmd.compile(spmd.parse(unknown))(np.int32([2, -3]), np.int32(2))
    assert result.tolist() == [16, 81]


def test_loops_with_effects_stay() -> None:
    text = loop().replace("%y =", '"check.expect_eq"(%x, %x) : (tensor<2xi32>, tensor<2xi32>) -> ()\n %y =')
    assert loops_left(text) == 1


def below(counter: str, bound: int) -> str:
    """The condition of a loop that goes on while `counter` is less than `bound`."""
    return f"""cond {{
        %b = stablehlo.constant dense<{bound}> : tensor<i32>
        %c = stablehlo.compare LT, {counter}, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}"""


def test_nested_loops_and_what_later_regions_capture() -> None:
    text = """func.func @main(%a: tensor<2xi32>, %p: tensor<i1>) -> tensor<2xi32> {
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %z, %x = %a) : tensor<i32>, tensor<2xi32> I_TO_2 do {
        %o = stablehlo.constant dense<1> : tensor<i32>
        %q:2 = stablehlo.while(%k = %z, %w = %x) : tensor<i32>, tensor<2xi32> K_TO_3 do {
          %l = stablehlo.add %k, %o : tensor<i32>
          %v = stablehlo.add %w, %a : tensor<2xi32>
          stablehlo.return %l, %v : tensor<i32>, tensor<2xi32>
        }
        %j = stablehlo.add %i, %o : tensor<i32>
        stablehlo.return %j, %q#1 : tensor<i32>, tensor<2xi32>
      }
      %s = "stablehlo.if"(%p) ({
        %t = stablehlo.add %r#1, %r#1 : tensor<2xi32>
        stablehlo.return %t : tensor<2xi32>
      }, {
        stablehlo.return %r#1 : tensor<2xi32>
      }) : (tensor<i1>) -> tensor<2xi32>
      return %s : tensor<2xi32>
    }""".replace("I_TO_2", below("%i", 2)).replace("K_TO_3", below("%k", 3))
    assert loops_left(text) == 0
    program = spmd.compile(spmd.parse(text))
    assert program(np.int32([1, 10]), np.False_)[0].tolist() == [7, 70]
    assert program(np.int32([1, 10]), np.True_)[0].tolist() == [14, 140]


@pytest.mark.parametrize(("element", "start", "bound", "step"), [
    ("i8", 0, 127, 3), ("i8", 120, 127, 4), ("i8", -128, 127, 100), ("ui8", 250, 255, 2),
    ("i32", 2**31 - 9, 2**31 - 1, 4),
])  # fmt: skip
def test_a_counter_that_wraps_counts_on(element: str, start: int, bound: int, step: int) -> None:
    """Until it meets the bound from below after all, as the loop itself has it."""
    low, high = storage_range(ELEMENT_TYPES[element])
    counter, turns = start, 0
    while counter < bound and turns < 1000:
        counter, turns = (counter + step - low) % (high - low + 1) + low, turns + 1
    unsigned = "UNSIGNED" if low == 0 else "SIGNED"
    text = f"""func.func @main() -> (tensor<{element}>, tensor<i32>) {{
      %s = stablehlo.constant dense<{start}> : tensor<{element}>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %s, %x = %z) : tensor<{element}>, tensor<i32> cond {{
        %b = stablehlo.constant dense<{bound}> : tensor<{element}>
        %m = stablehlo.constant dense<1000> : tensor<i32>
        %p = stablehlo.compare LT, %i, %b, {unsigned} : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
        %q = stablehlo.compare LT, %x, %m, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %r = stablehlo.and %p, %q : tensor<i1>
        stablehlo.return {"%p" if turns < 1000 else "%r"} : tensor<i1>
      }} do {{
        %d = stablehlo.constant dense<{step}> : tensor<{element}>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %y = stablehlo.add %x, %o : tensor<i32>
        %j = stablehlo.add %d, %i : tensor<{element}>
        stablehlo.return %j, %y : tensor<{element}>, tensor<i32>
      }}
      return %r#0, %r#1 : tensor<{element}>, tensor<i32>
    }}"""
    last, count = spmd.compile(spmd.parse(text))()
    assert (int(last), int(count)) == (counter, turns)
