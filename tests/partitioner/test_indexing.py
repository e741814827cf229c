"""gather and scatter cut along every dimension: whatever a dimension is in their numbers, the parts make the whole.

One dimension of the operand, A, is tried in every part that it can play; B is collapsed (inserted) and indexed, C is a
whole window. Each of A, B, the indices' batch dimension and the result is cut or not, evenly and unevenly.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.backends.together import Cases, Program, together
from tests.partitioner.drawing import integers, tensor
from tests.partitioner.running import Array, run_parts

_MESH = 'sdy.mesh @mesh = <["x"=2, "y"=2]>\n'
_BATCH = 5
#: What A is: (role, extent of a window along it, in the index map). A batching dimension is of the batch's size.
_PARTS = [
    ("window", None, False),
    ("window", None, True),
    ("window", 2, True),
    ("window", 2, False),
    ("window", 1, True),
    ("window", 1, False),
    ("inserted", 1, True),
    ("inserted", 1, False),
    ("batching", 1, False),
]
#: Axes of A, B and the batch.
_CUTS = [("x", "", ""), ("x", "y", ""), ('x", "y', "", ""), ("", "", "x"), ("x", "", "y"), ("y", "x", "")]


def _values(*shape: int) -> Array:
    """Numbers among which are both zeros, both infinities and a NaN; no sum of two of them happens."""
    random = np.random.default_rng(sum(shape))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    drawn = random.integers(-3, 4, shape).astype(np.float32)
    return np.where(random.random(shape) < 0.3, special[random.integers(0, 5, shape)], drawn)


class _IndexedProgram:
    """Numbers and shapes for one part of A, of `size` elements."""

    def __init__(self, part: tuple[str, int | None, bool], size: int, vector: int) -> None:
        role, extent, mapped = part
        self.size = _BATCH if role == "batching" else size
        self.operand = (self.size, 3, 4)
        self.extent = self.size if extent is None else extent
        self.map = [1, 0] if mapped else [1]
        self.vector = vector
        self.inserted = [0, 1] if role == "inserted" else [1]
        self.batching = [0] if role == "batching" else []
        self.windows = [d for d in (0, 2) if d not in self.inserted and d not in self.batching]
        self.indices = tuple(np.insert([_BATCH], vector, len(self.map)))
        self.slices = (_BATCH, *((self.extent, 0, 4)[d] for d in self.windows))
        places = list(range(1, 1 + len(self.windows)))
        self.batch_of_indices = [0 if vector else 1] if self.batching else []
        self.names = places

    def text(self, kind: str, cuts: tuple[str, str, str], index: str, sharded: bool) -> str:
        def annotated(*axes: str) -> str:
            inside = ", ".join("{" + (f'"{axis}"' if axis else "") + "}" for axis in axes)
            return f" {{sdy.sharding = #sdy.sharding<@mesh, [{inside}]>}}" if sharded else ""

        of_indices = [cuts[2], ""] if self.vector else ["", cuts[2]]
        arguments = [
            f"%a: {tensor(self.operand)}{annotated(cuts[0], cuts[1], '')}",
            f"%i: {tensor(self.indices, index)}{annotated(*of_indices)}",
        ]
        result_shape = self.slices if kind == "gather" else self.operand
        end = annotated(cuts[2], *([""] * len(self.windows))) if kind == "gather" else annotated(cuts[0], cuts[1], "")
        if kind != "gather":
            arguments.append(f"%u: {tensor(self.slices)}{annotated(cuts[2], *([''] * len(self.windows)))}")
        body = self._gather(index) if kind == "gather" else self._scatter(index, kind)
        mesh = _MESH if sharded else ""
        return (
            f"{mesh}func.func @main({', '.join(arguments)}) -> ({tensor(result_shape)}{end}) {{\n{body}\n"
            f"return %r : {tensor(result_shape)}\n}}"
        )

    def _gather(self, index: str) -> str:
        sizes = [1 if d in self.inserted or d in self.batching else (self.extent, 1, 4)[d] for d in range(3)]
        return (
            f'%r = "stablehlo.gather"(%a, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = {self.names}, '
            f"collapsed_slice_dims = {self.inserted}, operand_batching_dims = {self.batching}, "
            f"start_indices_batching_dims = {self.batch_of_indices}, start_index_map = {self.map}, "
            f"index_vector_dim = {self.vector}>, slice_sizes = {integers(sizes)}}}> : "
            f"({tensor(self.operand)}, {tensor(self.indices, index)}) -> {tensor(self.slices)}"
        )

    def _scatter(self, index: str, kind: str) -> str:
        fold = "stablehlo.return %y : tensor<f32>"
        if kind != "set":
            fold = f"%z = stablehlo.{kind} %x, %y : tensor<f32>\nstablehlo.return %z : tensor<f32>"
        return (
            f'%r = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<'
            f"update_window_dims = {self.names}, inserted_window_dims = {self.inserted}, "
            f"input_batching_dims = {self.batching}, scatter_indices_batching_dims = {self.batch_of_indices}, "
            f"scatter_dims_to_operand_dims = {self.map}, index_vector_dim = {self.vector}>}}> ({{\n"
            f"^bb0(%x: tensor<f32>, %y: tensor<f32>):\n{fold}\n}}) : ({tensor(self.operand)}, "
            f"{tensor(self.indices, index)}, {tensor(self.slices)}) -> {tensor(self.operand)}"
        )


def _places(case: _IndexedProgram, dtype: type, *, apart: bool = False) -> Array:
    """Places, some of them far outside; `apart`: no two the same, so that writes do not depend on their order."""
    random = np.random.default_rng(case.size)
    limits = np.iinfo(dtype)
    places = random.integers(0, 3, case.indices)
    if apart:
        places = np.arange(_BATCH).reshape([1 if n != _BATCH else n for n in case.indices]) + np.zeros(
            case.indices, int
        )
    places = places.astype(dtype)
    flat = places.reshape(-1)
    for index, value in enumerate((limits.max, limits.min, 3, max(limits.min, -1))):
        if not apart:
            flat[(7 * index) % flat.size] = value
    return places


def _same(actual: Array, expected: Array) -> None:
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("part", _PARTS, ids=lambda part: "-".join(map(str, part)))
@pytest.mark.parametrize("size", [4, 5])
@together
def test_gather(part: tuple[str, int | None, bool], size: int) -> Cases:
    whole, parts = [], []
    for (cuts, vector), index in zip(
        product(_CUTS, (1, 0)), ("i32", "i64", "ui8", "i8", "ui64", "i32", "i64", "ui32", "i16", "i64", "i32", "i8"),
        strict=True,
    ):  # fmt: skip
        case = _IndexedProgram(part, size, vector)
        dtype = np.dtype(index.replace("ui", "uint") if index[0] == "u" else index.replace("i", "int")).type
        arguments = [_values(*case.operand), _places(case, dtype)]
        whole.append(Program(case.text("gather", cuts, index, False), arguments))
        parts.append(case.text("gather", cuts, index, True))
    for text, program, (expected,) in zip(parts, whole, (yield whole), strict=True):
        (actual,) = run_parts(text, program.arrays, 4)
        _same(actual, expected)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("part", _PARTS, ids=lambda part: "-".join(map(str, part)))
@pytest.mark.parametrize("size", [4, 5])
@together
def test_scatter(part: tuple[str, int | None, bool], size: int) -> Cases:
    whole, parts = [], []
    kinds = ("add", "maximum", "set", "multiply", "minimum", "subtract")
    for (cuts, kind), vector, index in zip(
        zip(_CUTS, kinds, strict=True), (1, 0, 1, 0, 1, 0), ("i32", "i64", "ui8", "i8", "ui64", "i16"), strict=True
    ):
        case = _IndexedProgram(part, size, vector)
        dtype = np.dtype(index.replace("ui", "uint") if index[0] == "u" else index.replace("i", "int")).type
        random = np.random.default_rng(1)
        operand, updates = (random.integers(1, 4, shape).astype(np.float32) for shape in (case.operand, case.slices))
        arguments = [operand, _places(case, dtype, apart=kind in ("set", "subtract")), updates]
        whole.append(Program(case.text(kind, cuts, index, False), arguments))
        parts.append(case.text(kind, cuts, index, True))
    for text, program, (expected,) in zip(parts, whole, (yield whole), strict=True):
        (actual,) = run_parts(text, program.arrays, 4)
        _same(actual, expected)


def test_a_column_of_a_matrix_cut_in_rows() -> None:
    text = (
        _MESH
        + """
func.func @main(%a: tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<2xf32> {
  %i = stablehlo.constant dense<[[0], [1]]> : tensor<2x1xi32>
  %r = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
      start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}>
      : (tensor<4x2xf32>, tensor<2x1xi32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}"""
    )
    a = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(run_parts(text, [a], 4)[0], [1, 2])


@pytest.mark.parametrize(("name", "start"), [("add", 0.5), ("multiply", 0.5), ("minimum", 9), ("maximum", -9)])
def test_updates_without_an_index_are_folded_once_each(name: str, start: float) -> None:
    """Five updates over four processes: the padding of their blocks has no index that could be out of range."""
    numbers = "#stablehlo.scatter<update_window_dims = [0]>"
    text = (
        _MESH
        + f"""
func.func @main(%a: tensor<2xf32>, %i: tensor<0x5xi32>,
    %u: tensor<2x5xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{"x", "y"}}]>}}) -> tensor<2xf32> {{
  %r = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = {numbers}}}> ({{
  ^bb0(%one: tensor<f32>, %other: tensor<f32>):
    %f = stablehlo.{name} %one, %other : tensor<f32>
    stablehlo.return %f : tensor<f32>
  }}) : (tensor<2xf32>, tensor<0x5xi32>, tensor<2x5xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}}"""
    )
    operand, updates = np.full(2, start, np.float32), np.float32([[1, 2, 3, 4, 5], [-1, -2, -3, -4, -5]])
    fold = getattr(np, name)
    expected = [fold.reduce([first, *row]) for first, row in zip(operand, updates, strict=True)]
    np.testing.assert_array_equal(run_parts(text, [operand, np.zeros((0, 5), np.int32), updates], 4)[0], expected)
