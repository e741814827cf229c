"""Products of 8-bit integers in native code: sums of 32 bits, which wrap; every size, signed and not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.jit import processor
from spmd.backends.llvm.jit.ahead import object_file
from spmd.backends.llvm.jit.processor import chosen, host
from spmd.backends.llvm.matmul import products
from spmd.backends.llvm.matmul.integer_products import IntegerProduct, pair_bytes
from spmd.backends.llvm.matmul.matrices import integer_product_of
from tests.backends.together import Cases, Program, together

TYPES = {"i8": np.int8, "ui8": np.uint8}


def product_text(left: str, right: str, rows: int, depth: int, columns: int) -> str:
    a, b, c = f"{rows}x{depth}x{left}", f"{depth}x{columns}x{right}", f"{rows}x{columns}xi32"
    return f"""func.func @main(%a: tensor<{a}>, %b: tensor<{b}>) -> tensor<{c}> {{
      %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<{a}>, tensor<{b}>) -> tensor<{c}>
      return %r : tensor<{c}>
    }}"""


def product(left: str, right: str, rows: int, depth: int, columns: int) -> spmd.Module:
    return spmd.parse(product_text(left, right, rows, depth, columns))


@pytest.mark.parametrize(("left", "right"), [("i8", "i8"), ("ui8", "ui8"), ("i8", "ui8"), ("ui8", "i8")])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 2, 1), (3, 1, 5), (13, 33, 33), (12, 64, 32), (25, 127, 70), (2, 3000, 17)]
)
@together
def test_integer_products_are_exact(left: str, right: str, rows: int, depth: int, columns: int) -> Cases:
    text = product_text(left, right, rows, depth, columns)
    module = spmd.parse(text)
    assert integer_product_of(module.functions[0].body.ops[0], chosen()) is not None or 1 in (rows, depth, columns)
    rng = np.random.default_rng(depth)
    drawn = []
    for extreme in (False, True):
        inputs = []
        for name, shape in ((left, (rows, depth)), (right, (depth, columns))):
            least, most = np.iinfo(TYPES[name]).min, np.iinfo(TYPES[name]).max
            array = rng.integers(least, most, shape, TYPES[name], endpoint=True)
            inputs.append(rng.choice(np.array([least, most], TYPES[name]), shape) if extreme else array)
        drawn.append(inputs)
    for inputs, (native,) in zip(drawn, (yield [Program(text, inputs) for inputs in drawn]), strict=True):
        np.testing.assert_array_equal(native, inputs[0].astype(np.int32) @ inputs[1].astype(np.int32))


@pytest.mark.parametrize(("left", "right"), [("i8", "ui8"), ("ui8", "i8")])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 2**16 + 1, 1), (3, 3 * 2**16, 2), (17, 2**17 + 77, 40)])
@together
def test_long_sums_of_few_rows_and_columns_work_in_little_memory(
    left: str, right: str, rows: int, depth: int, columns: int
) -> Cases:
    text = product_text(left, right, rows, depth, columns)
    whole = integer_product_of(spmd.parse(text).functions[0].body.ops[0], chosen())
    assert whole is not None and pair_bytes(whole) < 1 << 23
    rng = np.random.default_rng(rows)
    inputs = [
        rng.integers(0, 128, shape).astype(TYPES[name])
        for name, shape in ((left, (rows, depth)), (right, (depth, columns)))
    ]
    ((native,),) = yield [Program(text, inputs)]
    np.testing.assert_array_equal(native, inputs[0].astype(np.int32) @ inputs[1].astype(np.int32))


#: Dimension numbers of products of f and g: with batches, with what is contracted first or last.
FORMS = {
    "batch, k last": ("3x{m}x{k}", "3x{n}x{k}", "batching_dims = [0] x [0], contracting_dims = [2] x [2]",
                      "bmk,bnk->bmn"),
    "batch, k first": ("3x{k}x{m}", "3x{k}x{n}", "batching_dims = [0] x [0], contracting_dims = [1] x [1]",
                       "bkm,bkn->bmn"),
    "k first": ("{k}x{m}", "{k}x{n}", "contracting_dims = [0] x [0]", "km,kn->mn"),
    "k last": ("{m}x{k}", "{n}x{k}", "contracting_dims = [1] x [1]", "mk,nk->mn"),
    "k apart": ("{k}x{m}", "{n}x{k}", "contracting_dims = [0] x [1]", "km,nk->mn"),
    "batches": ("2x3x{m}x{k}", "2x3x{k}x{n}", "batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]",
                "abmk,abkn->abmn"),
}  # fmt: skip


@contextmanager
def without_tiles() -> Iterator[None]:
    """Products compiled without the tile registers that some processors have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "suits_tiles", lambda product: False)
        yield


#: With those registers where there are any, and without.
KERNELS = [
    pytest.param(nullcontext, id="tiles", marks=pytest.mark.skipif(not host().has_tiles, reason="no tile registers")),
    pytest.param(without_tiles, id="pairs"),
]
Kernel = Callable[[], AbstractContextManager[None]]


@pytest.mark.sampled(18)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("left", "right"), [("i8", "i8"), ("ui8", "i8"), ("i8", "ui8")])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 1, 1), (5, 7, 9), (13, 6, 33), (12, 64, 32), (30, 131, 70), (200, 300, 90)]
)
@pytest.mark.parametrize("kernel", KERNELS)
@together
def test_forms_of_integer_products(
    form: str, left: str, right: str, rows: int, depth: int, columns: int, kernel: Kernel
) -> Cases:
    """One thread and three give the exact sums."""
    lhs, rhs, numbers, formula = FORMS[form]
    f, g = (text.format(m=rows, k=depth, n=columns) for text in (lhs, rhs))
    rng = np.random.default_rng(rows)
    arrays = []
    for name, shape in ((left, f), (right, g)):
        ends = np.iinfo(TYPES[name])
        arrays.append(rng.integers(ends.min, ends.max, [*map(int, shape.split("x"))], TYPES[name], endpoint=True))
    exact = np.einsum(formula, *(array.astype(np.int32) for array in arrays))
    c = "x".join(map(str, exact.shape))
    text = f"""func.func @main(%a: tensor<{f}x{left}>, %b: tensor<{g}x{right}>) -> tensor<{c}xi32> {{
      %r = stablehlo.dot_general %a, %b, {numbers} : (tensor<{f}x{left}>, tensor<{g}x{right}>) -> tensor<{c}xi32>
      return %r : tensor<{c}xi32>
    }}"""
    assert integer_product_of(spmd.parse(text).functions[0].body.ops[0], chosen()) is not None
    results = yield [Program(text, arrays, {"threads": threads}, kernel) for threads in (1, 3)]
    for (native,) in results:
        np.testing.assert_array_equal(native, exact)


@pytest.mark.parametrize("depth", [133_200, 0])
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (17, 20)])
@pytest.mark.parametrize("kernel", KERNELS)
@together
def test_sums_wrap_and_those_of_nothing_are_zero(rows: int, depth: int, columns: int, kernel: Kernel) -> Cases:
    a, b = np.full((rows, depth), -128, np.int8), np.full((depth, columns), -128, np.int8)
    (native,) = yield Program(product_text("i8", "i8", rows, depth, columns), [a, b], {}, kernel)
    assert native.tolist() == [[(128 * 128 * depth + 2**31) % 2**32 - 2**31] * columns] * rows


@pytest.mark.parametrize(("rows", "depth", "columns"), [(32, 64, 32), (96, 192, 80), (12, 16, 12), (700, 1000, 500)])
@pytest.mark.parametrize("kernel", KERNELS)
@together
def test_whole_tiles_and_parts_of_them(rows: int, depth: int, columns: int, kernel: Kernel) -> Cases:
    """Rows of one size and of several, and as many that several threads share them."""
    rng = np.random.default_rng(depth)
    a, b = rng.integers(-128, 128, (rows, depth), np.int8), rng.integers(-128, 128, (depth, columns), np.int8)
    text = product_text("i8", "i8", rows, depth, columns)
    results = yield [Program(text, [a, b], {"threads": threads}, kernel) for threads in (1, 2)]
    for (native,) in results:
        np.testing.assert_array_equal(native, a.astype(np.float64) @ b.astype(np.float64))  # exact, and by BLAS


def test_object_files_do_without_what_a_process_must_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A C program that links one has asked for nothing."""

    has_tiles: list[bool] = []

    def suits_tiles(product: IntegerProduct) -> bool:
        has_tiles.append(product.processor.has_tiles)
        return False

    monkeypatch.setattr(products, "suits_tiles", suits_tiles)
    assert object_file(product("i8", "i8", 64, 64, 64).functions[0].body, "f", replace(host(), has_tiles=True)).image
    assert has_tiles
    assert not any(has_tiles)


def test_code_of_processes_that_may_not_use_tiles_is_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    told = host()
    monkeypatch.setattr(processor, "_may_use_tiles", lambda: False)
    refused = processor.host.__wrapped__()
    assert not refused.has_tiles
    assert (refused.key == told.key) == (not told.has_tiles)
