"""Products of matrices and vectors, which are folds, and of operands that are no matrices as they lie."""

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.backends.llvm.target import LlvmTarget
from tests.backends.together import Cases, Program, together
from tests.compiler.schedule.test_schedule import units_of

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
INTEGERS = {"i32": np.int32, "ui32": np.uint32, "i64": np.int64, "ui64": np.uint64}
DTYPES |= INTEGERS


def product(equation: str, sizes: dict[str, int], element: str) -> str:
    """A dot_general, of an einsum whose result has batching dimensions first, then those of lhs, then those of rhs."""
    operands, result = equation.split("->")
    lhs, rhs = operands.split(",")
    batch = [d for d in lhs if d in rhs and d in result]
    folded = [d for d in lhs if d in rhs and d not in result]

    def tensor(dimensions: str) -> str:
        return f"tensor<{''.join(f'{sizes[d]}x' for d in dimensions)}{element}>"

    def places(dimensions: list[str]) -> str:
        left, right = ([side.index(d) for d in dimensions] for side in (lhs, rhs))
        return f"{left} x {right}"

    return f"""func.func @main(%a: {tensor(lhs)}, %b: {tensor(rhs)}) -> {tensor(result)} {{
      %p = stablehlo.dot_general %a, %b, batching_dims = {places(batch)}, contracting_dims = {places(folded)}
        : ({tensor(lhs)}, {tensor(rhs)}) -> {tensor(result)}
      return %p : {tensor(result)}
    }}"""


def check(equation: str, sizes: dict[str, int], element: str) -> Cases:
    operands, _ = equation.split("->")
    rng = np.random.default_rng(0)
    text = product(equation, sizes, element)
    assert all(unit.fused or LlvmTarget().supports(unit.outputs[0]) for unit in units_of(text))
    shapes = [[sizes[d] for d in side] for side in operands.split(",")]
    if np.dtype(DTYPES[element]).kind in "iu":
        ends = np.iinfo(DTYPES[element])
        x, y = (rng.integers(ends.min, ends.max, shape, DTYPES[element], endpoint=True) for shape in shapes)
        (got,) = yield Program(text, [x, y])
        np.testing.assert_array_equal(got, np.einsum(equation, x, y))  # which wraps
        return
    x, y = (rng.standard_normal(shape).astype(DTYPES[element]) for shape in shapes)
    wide = np.einsum(equation, x.astype(np.float64), y.astype(np.float64))
    tolerance = {"f32": 1e-5, "f64": 1e-13}.get(element, 1e-2)
    (got,) = yield Program(text, [x, y])
    assert got.dtype == DTYPES[element]
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=tolerance, atol=tolerance * 10)


VECTORS = ["mk,k->m", "km,k->m", "k,km->m", "k,mk->m", "k,k->", "bmk,bk->bm", "bk,bkm->bm", "mbk,bk->bm", "mkl,kl->m",
           "kml,lk->m", "bkm,bko->bmo", "abmk,abk->abm"]  # fmt: skip


@pytest.mark.parametrize("equation", VECTORS)
@pytest.mark.parametrize(("m", "k"), [(5, 7), (1, 100), (70, 300), (3, 0)])
@together
def test_products_of_matrices_and_vectors(equation: str, m: int, k: int) -> Cases:
    return check(equation, {"m": m, "k": k, "l": 3, "a": 2, "b": 4, "o": 1}, "f32")


@pytest.mark.parametrize("element", DTYPES)
@together
def test_elements_are_summed_in_the_accumulator(element: str) -> Cases:
    return check("mk,k->m", {"m": 20, "k": 100}, element)


@pytest.mark.parametrize("equation", ["bi,oij->boj", "ikm,kn->imn", "bqhd,bkhd->bhqk", "kml,lnk->mn", "ami,bin->ambn"])
@pytest.mark.parametrize("element", ["f32", "bf16", "i64"])
@together
def test_operands_whose_dimensions_lie_apart_become_matrices(equation: str, element: str) -> Cases:
    sizes = {"b": 2, "i": 5, "o": 4, "j": 6, "m": 7, "k": 3, "n": 9, "q": 11, "h": 2, "d": 8, "l": 10, "a": 3}
    return check(equation, sizes, element)


@pytest.mark.parametrize("element", ["i32", "ui64"])
@pytest.mark.parametrize("equation", ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "abmk,abkn->abmn"])
@pytest.mark.parametrize(("m", "k", "n"), [(13, 5, 33), (100, 64, 70), (3, 0, 2)])
@together
def test_integers_are_multiplied_in_tiles(equation: str, element: str, m: int, k: int, n: int) -> Cases:
    return check(equation, {"m": m, "k": k, "n": n, "a": 2, "b": 3}, element)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [("ui8", "i32", "i32"), ("i16", "i16", "i32"), ("ui32", "ui32", "ui64"), ("i8", "i8", "i64")],
)
def test_narrow_integers_are_summed_in_the_result(left: str, right: str, result: str) -> None:
    text = f"""func.func @main(%a: tensor<9x21x{left}>, %b: tensor<21x34x{right}>) -> tensor<9x34x{result}> {{
      %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<9x21x{left}>, tensor<21x34x{right}>) -> tensor<9x34x{result}>
      return %p : tensor<9x34x{result}>
    }}"""
    rng = np.random.default_rng(0)

    def numbers(element: str, shape: tuple[int, int]) -> np.ndarray:
        dtype = np.dtype(element.replace("ui", "uint") if "ui" in element else element.replace("i", "int"))
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)

    x, y = numbers(left, (9, 21)), numbers(right, (21, 34))
    (got,) = spmd.compile(spmd.parse(text))(x, y)
    np.testing.assert_array_equal(got, x.astype(got.dtype) @ y.astype(got.dtype))


def test_a_row_has_the_same_bits_among_any_others() -> None:
    rng = np.random.default_rng(1)
    a, v = rng.standard_normal((97, 1000)).astype(np.float32), rng.standard_normal(1000).astype(np.float32)

    def result(rows: np.ndarray, threads: int) -> np.ndarray:
        module = spmd.parse(product("mk,k->m", {"m": len(rows), "k": 1000}, "f32"))
        return np.asarray(spmd.compile(module, threads=threads)(rows, v)[0])

    whole = result(a, 1)
    for first, last in ((0, 1), (3, 20), (90, 97)):
        np.testing.assert_array_equal(result(a[first:last], 1), whole[first:last])
    np.testing.assert_array_equal(result(a, 3), whole)
