"""Arrays whose last dimension is short: lanes take several turns of the loop around, and give the reference's bits."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spmd
from spmd.compiler.schedule import tasks
from spmd.types import element_type_of
from tests.effort import examples

SIZES = st.sampled_from([1, 2, 3, 5, 17, 21, 64, 67])
#: Around half, all and twice of what fills vectors of bytes, of 4-byte and of 8-byte elements.
SHORT = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 33])
TYPES = (np.uint8, np.int16, np.float32, np.float64, np.complex64, np.bool_)


class Program:
    """Lines of a program over one argument %x, drawn one by one; the last value is its result."""

    def __init__(self, dtype: type, shape: tuple[int, ...]) -> None:
        self.element = str(element_type_of(np.dtype(dtype)))
        self.argument = self.type_of(shape)
        self.lines: list[str] = []
        self.name, self.shape = "%x", shape

    def type_of(self, shape: tuple[int, ...]) -> str:
        return "tensor<" + "".join(f"{size}x" for size in shape) + f"{self.element}>"

    def emit(self, text: str, shape: tuple[int, ...]) -> str:
        self.lines.append(f"%v{len(self.lines)} = stablehlo.{text} -> {self.type_of(shape)}")
        return f"%v{len(self.lines) - 1}"

    def move(self, text: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = self.emit(f"{text} : ({self.type_of(self.shape)})", shape), shape

    # --- what is drawn ---

    def reverse(self, data: st.DataObject) -> None:
        dims = data.draw(st.lists(st.integers(0, len(self.shape) - 1), min_size=1, unique=True))
        type = self.type_of(self.shape)
        self.lines.append(f"%v{len(self.lines)} = stablehlo.reverse {self.name}, dims = {sorted(dims)} : {type}")
        self.name = f"%v{len(self.lines) - 1}"

    def transpose(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(self.shape))))
        self.move(f"transpose {self.name}, dims = {list(order)}", tuple(self.shape[d] for d in order))

    def cut(self, data: st.DataObject) -> None:
        starts = [data.draw(st.integers(0, size - 1)) for size in self.shape]
        steps = [data.draw(st.integers(1, 3)) for _ in self.shape]
        shape = tuple(-(-(size - a) // s) for size, a, s in zip(self.shape, starts, steps, strict=True))
        ranges = ", ".join(f"{a}:{size}:{s}" for a, size, s in zip(starts, self.shape, steps, strict=True))
        self.move(f"slice {self.name} [{ranges}]", shape)

    def pad(self, data: st.DataObject) -> None:
        low = [data.draw(st.integers(0, 2)) for _ in self.shape]
        high = [data.draw(st.integers(-1 if size > 1 else 0, 2)) for size in self.shape]
        inner = [data.draw(st.integers(0, 2)) for _ in self.shape]
        sizes = zip(self.shape, low, high, inner, strict=True)
        shape = tuple(size + before + after + (size - 1) * between for size, before, after, between in sizes)
        zero = self.emit(f"slice %x [{', '.join(['0:1'] * 3)}] : ({self.argument})", (1, 1, 1))
        zero = self.emit(f"reshape {zero} : ({self.type_of((1, 1, 1))})", ())
        types = f"({self.type_of(self.shape)}, {self.type_of(())})"
        how = f"low = {low}, high = {high}, interior = {inner}"
        self.name, self.shape = self.emit(f"pad {self.name}, {zero}, {how} : {types}", shape), shape

    def stack(self, data: st.DataObject) -> None:
        """Some slices of the last dimension, one after another."""
        *others, last = self.shape
        names, types, total = [], [], 0
        for _ in range(data.draw(st.integers(1, 4))):
            start = data.draw(st.integers(0, last - 1))
            size = data.draw(st.integers(1, min(2, last - start)))
            ranges = ", ".join([*(f"0:{other}" for other in others), f"{start}:{start + size}"])
            names.append(self.emit(f"slice {self.name} [{ranges}] : ({self.type_of(self.shape)})", (*others, size)))
            types.append(self.type_of((*others, size)))
            total += size
        shape = (*others, total)
        self.name = self.emit(f"concatenate {', '.join(names)}, dim = 2 : ({', '.join(types)})", shape)
        self.shape = shape

    def combine(self, data: st.DataObject) -> None:
        """With what does not change along some dimensions."""
        kept = data.draw(st.lists(st.integers(0, 2), unique=True, max_size=2).map(sorted))
        ranges = ", ".join(f"0:{size if d in kept else 1}" for d, size in enumerate(self.shape))
        part = tuple(size if d in kept else 1 for d, size in enumerate(self.shape))
        name = self.emit(f"slice {self.name} [{ranges}] : ({self.type_of(self.shape)})", part)
        name = self.emit(f"broadcast_in_dim {name}, dims = [0, 1, 2] : ({self.type_of(part)})", self.shape)
        type = self.type_of(self.shape)
        self.lines.append(f"%v{len(self.lines)} = stablehlo.multiply {self.name}, {name} : {type}")
        self.name = f"%v{len(self.lines) - 1}"

    def text(self) -> str:
        result = self.type_of(self.shape)
        lines = "\n".join(self.lines)
        return f"func.func @main(%x: {self.argument}) -> {result} {{\n{lines}\nreturn {self.name} : {result}\n}}"


def values(dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(7)
    if np.issubdtype(dtype, np.inexact):
        array = random.standard_normal(shape).astype(dtype)
        array.flat[:: max(1, array.size // 5)] = -0.0
        return array
    return random.integers(0, 2 if dtype is np.bool_ else 120, shape).astype(dtype)


@pytest.mark.parametrize("threads", [1, 3])
@given(st.data())
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
def test_short_last_dimensions(monkeypatch: pytest.MonkeyPatch, threads: int, data: st.DataObject) -> None:
    for name in ("_LEAST_UNIT", "_LEAST_TASK", "_LEAST_POINTS"):
        monkeypatch.setattr(tasks, name, 1)
    dtype = data.draw(st.sampled_from(TYPES))
    program = Program(dtype, (data.draw(SIZES), data.draw(SIZES), data.draw(SHORT)))
    ways = [program.reverse, program.transpose, program.cut, program.pad, program.stack, program.combine]
    for way in data.draw(st.lists(st.sampled_from(ways), min_size=1, max_size=4)):
        way(data)
    x = values(dtype, tuple(map(int, program.argument[7:].split("x")[:3])))
    module = spmd.parse(program.text())
    (expected,) = spmd.compile(module, backends=("numpy",))(x)
    (mine,) = spmd.compile(module, threads=threads)(x)
    np.testing.assert_array_equal(mine, expected)
    if dtype is not np.complex64:
        assert mine.tobytes() == expected.tobytes()


@pytest.mark.parametrize("short", [2, 3, 5, 8])
@pytest.mark.parametrize("folded", [0, 2])
def test_folds_for_each_element_of_a_short_dimension(short: int, folded: int) -> None:
    shape = (3, 67, 4, short)
    result = tuple(size for dimension, size in enumerate(shape) if dimension != folded)
    here, there = ("tensor<" + "x".join(map(str, sizes)) + "xf32>" for sizes in (shape, result))
    module = spmd.parse(f"""func.func @main(%x: {here}, %z: tensor<f32>) -> {there} {{
      %y = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [{folded}]
        : ({here}, tensor<f32>) -> {there}
      return %y : {there}
    }}""")
    x, zero = values(np.float32, shape), np.float32(-0.0)
    (expected,) = spmd.compile(module, backends=("numpy",))(x, zero)
    (mine,) = spmd.compile(module)(x, zero)
    assert mine.tobytes() == expected.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(7, 600, 3), (2, 1 << 14, 5), (23, 40, 2)])
def test_long_folds_are_cut_in_blocks(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], threads: int) -> None:
    for name in ("_LEAST_UNIT", "_LEAST_TASK", "_LEAST_POINTS"):
        monkeypatch.setattr(tasks, name, 1)
    rows, folded, short = shape
    module = spmd.parse(f"""func.func @main(%x: tensor<{rows}x{folded}x{short}xi32>) -> tensor<{rows}x{short}xi32> {{
      %z = stablehlo.constant dense<5> : tensor<i32>
      %y = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<{rows}x{folded}x{short}xi32>, tensor<i32>) -> tensor<{rows}x{short}xi32>
      return %y : tensor<{rows}x{short}xi32>
    }}""")
    x = np.random.default_rng(1).integers(-(1 << 30), 1 << 30, shape, np.int32)
    np.testing.assert_array_equal(spmd.compile(module, threads=threads)(x)[0], x.sum(1, dtype=np.int32) + np.int32(5))


@pytest.mark.parametrize("short", [1, 3, 8, 16, 17])
def test_rows_beyond_the_ends_are_not_updated(short: int) -> None:
    module = spmd.parse(f"""func.func @main(%x: tensor<9x{short}xf32>, %i: tensor<40x1xi32>, %u: tensor<40x{short}xf32>)
        -> tensor<9x{short}xf32> {{
      %r = "stablehlo.scatter"(%x, %i, %u) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
        : (tensor<9x{short}xf32>, tensor<40x1xi32>, tensor<40x{short}xf32>) -> tensor<9x{short}xf32>
      return %r : tensor<9x{short}xf32>
    }}""")
    random = np.random.default_rng(2)
    x, u = values(np.float32, (9, short)), values(np.float32, (40, short))
    places = random.integers(-3, 12, (40, 1), np.int32)
    places[:4, 0] = -(1 << 31), (1 << 31) - 1, 9, -1
    expected = x.copy()
    for place, row in zip(places[:, 0], u, strict=True):
        if 0 <= place < 9:
            expected[place] += row
    np.testing.assert_array_equal(spmd.compile(module)(x, places, u)[0], expected)
