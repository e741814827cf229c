"""Windows of a scatter that lie partly outside, and the order of updates that overlap."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

import spmd
from spmd.builder import ScatterDimensionNumbers, XlaBuilder, XlaOp, ops
from spmd.support.arrays import Array
from tests.backends.together import Cases, Program, together
from tests.builder.support import evaluate, f32, s32, scalars

#: What a module of XLA's front ends says, and what one of nobody's does.
ORIGINS = {"xla": "mhlo.is_dynamic = false", "specification": "mhlo.num_replicas = 1 : i32"}
BODIES = {
    "set": "stablehlo.return %b : tensor<i32>",
    "add": "%s = stablehlo.add %a, %b : tensor<i32>\nstablehlo.return %s : tensor<i32>",
    # of any region, not commutative
    "mix": "%t = stablehlo.add %a, %a : tensor<i32>\n%s = stablehlo.subtract %b, %t : tensor<i32>\n"
    "stablehlo.return %s : tensor<i32>",
}
COMBINED = {"set": lambda old, new: new, "add": lambda old, new: old + new, "mix": lambda old, new: new - 2 * old}


@dataclass(frozen=True)
class Case:
    operand: Array
    indices: Array
    updates: Array
    mapped: tuple[int, ...]
    inserted: tuple[int, ...]
    windows: tuple[int, ...]

    def text(self, kind: str) -> str:
        arrays = (self.operand, self.indices, self.updates)
        x, i, u = ("tensor<" + "".join(f"{size}x" for size in array.shape) + "i32>" for array in arrays)
        return f"""func.func @main(%x: {x}, %i: {i}, %u: {u}) -> {x} {{
          %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
            update_window_dims = {list(self.windows)}, inserted_window_dims = {list(self.inserted)},
            scatter_dims_to_operand_dims = {list(self.mapped)}, index_vector_dim = {self.indices.ndim - 1}>}}> ({{
            ^bb0(%a: tensor<i32>, %b: tensor<i32>):
              {BODIES[kind]}
          }}) : ({x}, {i}, {u}) -> {x}
          return %r : {x}
        }}"""

    def expected(self, kind: str, whole: bool) -> Array:
        """Window by window, each in row-major order."""
        result, rank = self.operand.copy(), self.operand.ndim
        kept = [d for d in range(rank) if d not in self.inserted]
        sizes = [self.updates.shape[d] for d in self.windows]
        for batch in itertools.product(*map(range, self.indices.shape[:-1])):
            start = [0] * rank
            for dimension, first in zip(self.mapped, self.indices[batch], strict=True):
                start[dimension] = int(first)
            writes = []
            for offset in itertools.product(*map(range, sizes)):
                place, within, rest = list(start), iter(offset), iter(batch)
                for dimension, step in zip(kept, offset, strict=True):
                    place[dimension] += step
                source = tuple(next(within) if d in self.windows else next(rest) for d in range(self.updates.ndim))
                inside = all(0 <= at < size for at, size in zip(place, result.shape, strict=True))
                writes.append((tuple(place), source, inside))
            if whole and not all(inside for *_, inside in writes):
                continue
            for at, source, inside in writes:
                if inside:
                    result[at] = COMBINED[kind](result[at], self.updates[source])
        return result


def drawn(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = [int(size) for size in rng.integers(1, 7, rank)]
    mapped = tuple(int(d) for d in rng.permutation(rank)[: rng.integers(1, rank + 1)])
    inserted = tuple(sorted(d for d in mapped if rng.random() < 0.3))
    sizes = iter([int(rng.integers(1, shape[d] + 1)) for d in range(rank) if d not in inserted])
    batch = [int(size) for size in rng.integers(1, 4, rng.integers(0, 3))]
    ranks = len(batch) + rank - len(inserted)
    windows = tuple(sorted(int(d) for d in rng.permutation(ranks)[: rank - len(inserted)]))
    rest = iter(batch)
    updates = [next(sizes) if d in windows else next(rest) for d in range(ranks)]
    return Case(
        rng.integers(0, 100, shape).astype(np.int32),
        rng.integers(-3, 8, [*batch, len(mapped)]).astype(np.int32),
        rng.integers(100, 1000, updates).astype(np.int32),
        mapped,
        inserted,
        windows,
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("origin", ORIGINS)
@together
def test_windows_partly_outside_and_overlapping(origin: str, kind: str) -> Cases:
    """Drawn scatters in native code, by NumPy, and stacked."""
    cases, programs, wanted = [drawn(seed) for seed in range(12)], [], []
    for case in cases:
        text, want, attributes = case.text(kind), case.expected(kind, origin == "xla"), ORIGINS[origin]
        arrays = case.operand, case.indices, case.updates
        stacked = np.stack([case.operand] * 2), case.indices[None], np.stack([case.updates] * 2)
        programs += [
            Program(text, arrays, {"backends": ("llvm", "numpy")}, attributes=attributes),
            Program(text, arrays, {"backends": ("numpy",)}, attributes=attributes),
            Program(text, stacked, processes=2, attributes=attributes),
        ]
        wanted += [want, want, np.stack([want] * 2)]
    results = yield programs
    for program, (got,), want in zip(programs, results, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=str(program))


def test_windows_that_overlap_are_done_one_after_another() -> None:
    """The window's dimension comes before the scatter's in the updates."""
    case = Case(
        np.array([1, 2, 3, 4, 0], np.int32),
        np.array([[2], [1]], np.int32),
        np.array([[7, 5], [8, 6], [9, 7]], np.int32),
        (0,),
        (),
        (0,),
    )
    (got,) = spmd.compile(spmd.parse(case.text("set")))(case.operand, case.indices, case.updates)
    assert got.tolist() == [1, 5, 6, 7, 9]


@pytest.mark.parametrize("index", ["s8", "s32", "u64"])
def test_a_builder_applies_each_element_whose_index_is_valid(index: str) -> None:
    """Of XlaBuilder, through its text and HLO's (tests.builder.support.evaluate). Source: "Scatter"."""
    add = scalars("add", ["f32", "f32"], ops.Add)
    numbers = ScatterDimensionNumbers([1], [], [0], 1)

    def body(_: XlaBuilder, x: XlaOp, i: XlaOp, u: XlaOp) -> XlaOp:
        return ops.Scatter(x, ops.ConvertElementType(i, index), u, add, numbers)

    got = evaluate(body, f32([0, 0, 0, 0, 0]), s32([[3], [1], [-1]]), f32([[1, 2, 3], [4, 5, 6], [7, 8, 9]]))
    np.testing.assert_array_equal(got, [0, 4, 5, 7, 2] if index == "u64" else [8, 13, 5, 7, 2])


def test_a_builder_applies_each_element_of_several_operands_and_without_index_vectors() -> None:
    """The second operand is of integers; a scalar is an index, its dimension implicit."""
    swap = scalars("swap", ["f32", "s32", "f32", "s32"], lambda a, b, c, d: ops.Tuple(a.builder, [c, b + d]))
    numbers = ScatterDimensionNumbers([0, 1], [], [1], 0)

    def body(_: XlaBuilder, x: XlaOp, y: XlaOp, i: XlaOp, u: XlaOp, v: XlaOp) -> XlaOp:
        return ops.Scatter([x, y], i, [u, v], swap, numbers)

    x, y = np.zeros((2, 4), np.float32), np.ones((2, 4), np.int32)
    u, v = f32([[1, 2, 3], [4, 5, 6]]), s32([[1, 2, 3], [4, 5, 6]])
    for at, columns in ((2, slice(2, 4)), (-2, slice(0, 1)), (-3, slice(0, 0)), (4, slice(0, 0))):
        first, second = evaluate(body, x, y, s32(at), u, v)
        source = slice(columns.start - at, columns.stop - at) if columns.stop > columns.start else slice(0, 0)
        want_first, want_second = x.copy(), y.copy()
        want_first[:, columns], want_second[:, columns] = u[:, source], y[:, columns] + v[:, source]
        np.testing.assert_array_equal(first, want_first)
        np.testing.assert_array_equal(second, want_second)


def test_hlo_text_leaves_out_whole_windows() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[5] parameter(0)
  i = s32[3,1] parameter(1)
  u = f32[3,3] parameter(2)
  ROOT r = f32[5] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=add, frontend_attributes={a="b"}
}"""
    arrays = f32([0, 0, 0, 0, 0]), s32([[3], [1], [-1]]), f32([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    module = spmd.parse(text, "windows.hlo")
    for program in (module, spmd.parse(spmd.builder.hlo.print_hlo(module), "again.hlo")):
        np.testing.assert_array_equal(spmd.compile(program)(*arrays)[0], [0, 4, 5, 6, 0])


def test_results_that_jax_names_are_a_sign_of_its_programs() -> None:
    """A window of two at the last of three rows: dropped where JAX lowered the program, else written in part."""
    text = """func.func @main(%x: tensor<3xi32>, %i: tensor<1xi32>, %u: tensor<2xi32>) -> (tensor<3xi32>NAMED) {
      %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 0>}> ({
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          stablehlo.return %b : tensor<i32>
      }) : (tensor<3xi32>, tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
      return %r : tensor<3xi32>
    }"""
    arrays = np.int32([0, 0, 0]), np.int32([2]), np.int32([7, 8])
    for name, expected in ((' {jax.result_info = "result"}', [0, 0, 0]), ("", [0, 0, 7])):
        (result,) = spmd.compile(spmd.parse(text.replace("NAMED", name)))(*arrays)
        assert result.tolist() == expected


def test_frontend_attributes_are_no_sign_of_a_front_end() -> None:
    case = Case(np.int32([0, 0, 0]), np.int32([[2]]), np.int32([[7, 8]]), (0,), (), (1,))
    text = f'module attributes {{mhlo.frontend_attributes = {{a = "b"}}}} {{ {case.text("set")} }}'
    (result,) = spmd.compile(spmd.parse(text))(case.operand, case.indices, case.updates)
    assert result.tolist() == [0, 0, 7]
