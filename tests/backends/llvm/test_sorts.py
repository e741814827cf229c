"""Short sorts in native code give what the NumPy back end gives, to the bit: ties, NaN and zeros of both signs."""

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import chosen_options
from spmd.types import ELEMENT_TYPES
from tests.backends.modules import main, type_of
from tests.backends.together import Cases, Program, for_numpy, together
from tests.effort import some_slow

HARD = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1, 1, -1]
#: What comparators say of the sides %a and %b of the first operand.
COMPARATORS = {
    "ascending": "stablehlo.compare LT, %a, %b",
    "descending": "stablehlo.compare GT, %a, %b",
    "total order": "stablehlo.compare LT, %a, %b, TOTALORDER",
    "descending total order": "stablehlo.compare GT, %a, %b, TOTALORDER",
}


def sort_text(element: str, shape: tuple[int, ...], dimension: int, comparator: str) -> str:
    """A stable sort of values together with the number of each in its row."""
    values, numbers = type_of((element, shape)), type_of(("i32", shape))
    scalar = f"tensor<{element}>"
    body = f"""%n = stablehlo.iota dim = {dimension} : {numbers}
      %r:2 = "stablehlo.sort"(%0, %n) <{{dimension = {dimension} : i64, is_stable = true}}> ({{
      ^bb0(%a: {scalar}, %b: {scalar}, %c: tensor<i32>, %d: tensor<i32>):
        %p = {comparator} : ({scalar}, {scalar}) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }}) : ({values}, {numbers}) -> ({values}, {numbers})"""
    return main(body, [np.zeros(shape, ELEMENT_TYPES[element].dtype)], f"%r#0, %r#1 : {values}, {numbers}")


def elements(element: str, shape: tuple[int, ...]) -> np.ndarray:
    rng, dtype = np.random.default_rng(0), ELEMENT_TYPES[element].dtype
    x = rng.integers(0, 5, shape).astype(dtype)
    if dtype.kind not in "iub":
        hard = rng.random(shape) < 0.5
        x[hard] = rng.choice(np.array(HARD), hard.sum()).astype(dtype)
    return x


@pytest.mark.parametrize("element", some_slow(["f32", "bf16", "i8", "i64", "i1", "f64", "f16", "ui32"], 3))
@pytest.mark.parametrize("order", COMPARATORS)
@pytest.mark.parametrize(
    ("shape", "dimension"), [((2,), 0), ((5, 33), 1), ((9, 7, 3), 0), ((2, 256), 1), ((3, 40, 2), 1)]
)
@together
def test_short_sorts_are_those_of_numpy(element: str, order: str, shape: tuple[int, ...], dimension: int) -> Cases:
    floats = ELEMENT_TYPES[element].is_float
    if "total" in order and not floats:
        return
    text, x = sort_text(element, shape, dimension, COMPARATORS[order]), elements(element, shape)
    want, *native = yield for_numpy(text, x), *(Program(text, [x], {"threads": threads}) for threads in (1, 2))
    for results in native:
        for ours, theirs in zip(results, want, strict=True):
            assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize(("size", "steps"), [(256, 1), (257, 0)])
def test_up_to_a_length_a_sort_is_one_native_function(size: int, steps: int) -> None:
    module = spmd.parse(sort_text("f32", (3, size), 1, COMPARATORS["ascending"]))
    _, plan = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {})).entry(module.functions[0])
    native = [step.kernel.is_native for step in plan.steps]
    assert native == [True] if steps else not all(native)
