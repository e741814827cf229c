"""Folds of short rows: the bits of folding many rows side by side, however a block is turned."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.loops import nests
from spmd.backends.llvm.reductions import small_axis_reduction as short_rows
from spmd.compiler.schedule import lanes, loop_plan, tasks
from spmd.types import ELEMENT_TYPES

SUM = "applies stablehlo.add across dimensions = [1]"


def summed(rows: int, columns: int, element: str) -> str:
    """Nothing but what is folded is computed."""
    here, there, one = f"tensor<{rows}x{columns}x{element}>", f"tensor<{rows}x{element}>", f"tensor<{element}>"
    return f"""func.func @main(%x: {here}, %y: {here}, %z: {one}) -> {there} {{
      %r = stablehlo.reduce(%x init: %z) {SUM} : ({here}, {one}) -> {there}
      return %r : {there}
    }}"""


def stepped(rows: int, columns: int, element: str) -> str:
    """What is folded is a result, too, and a row's own number takes part."""
    here, there, one = f"tensor<{rows}x{columns}x{element}>", f"tensor<{rows}x{element}>", f"tensor<{element}>"
    return f"""func.func @main(%x: {here}, %y: {here}, %z: {one}) -> ({there}, {here}) {{
      %f = stablehlo.slice %x [0:{rows}, 0:1] : ({here}) -> tensor<{rows}x1x{element}>
      %b = stablehlo.broadcast_in_dim %f, dims = [0, 1] : (tensor<{rows}x1x{element}>) -> {here}
      %w = stablehlo.slice %y [0:1, 0:{columns}] : ({here}) -> tensor<1x{columns}x{element}>
      %v = stablehlo.broadcast_in_dim %w, dims = [0, 1] : (tensor<1x{columns}x{element}>) -> {here}
      %m = stablehlo.multiply %x, %b : {here}
      %a = stablehlo.add %m, %y : {here}
      %s = stablehlo.subtract %a, %v : {here}
      %r = stablehlo.reduce(%s init: %z) {SUM} : ({here}, {one}) -> {there}
      return %r, %s : {there}, {here}
    }}"""


def largest(rows: int, columns: int, element: str) -> str:
    """The largest element and its place: two values are folded, one of them a position."""
    here, there, one = f"tensor<{rows}x{columns}x{element}>", f"tensor<{rows}x{element}>", f"tensor<{element}>"
    places, place = f"tensor<{rows}x{columns}xi32>", f"tensor<{rows}xi32>"
    return f"""func.func @main(%x: {here}, %y: {here}, %z: {one}) -> ({there}, {place}) {{
      %i = stablehlo.iota dim = 1 : {places}
      %n = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.reduce(%x init: %z), (%i init: %n) across dimensions = [1]
        : ({here}, {places}, {one}, tensor<i32>) -> ({there}, {place})
        reducer(%a: {one}, %c: {one}) (%k: tensor<i32>, %l: tensor<i32>) {{
          %g = stablehlo.compare GE, %a, %c : ({one}, {one}) -> tensor<i1>
          %v = stablehlo.select %g, %a, %c : tensor<i1>, {one}
          %p = stablehlo.select %g, %k, %l : tensor<i1>, tensor<i32>
          stablehlo.return %v, %p : {one}, tensor<i32>
        }}
      return %r#0, %r#1 : {there}, {place}
    }}"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("element", ["f32", "ui8", "bf16"])
@pytest.mark.parametrize("columns", [2, 7, 16])
@pytest.mark.parametrize("program", [summed, stepped, largest])
def test_the_same_bits(monkeypatch: pytest.MonkeyPatch, program: object, columns: int, element: str) -> None:
    for name in ("_LEAST_UNIT", "_LEAST_TASK", "_LEAST_POINTS"):
        monkeypatch.setattr(tasks, name, 1)
    taken: list[object] = []
    write = short_rows.write_small_axis
    monkeypatch.setattr(nests, "write_small_axis", lambda *arguments: (taken.append(None), write(*arguments)))
    random, dtype = np.random.default_rng(3), ELEMENT_TYPES[element].dtype
    rows = 37
    x, y = ((random.standard_normal((rows, columns)) * 50).astype(dtype) for _ in range(2))
    if element.startswith("f"):
        x[::5], x[3, 1], x[4, 0], x[6] = -0.0, np.nan, -np.inf, x[7]
    module, zero = spmd.parse(program(rows, columns, element)), dtype.type(3)  # type: ignore[operator]
    turned = [spmd.compile(module, threads=threads)(x, y, zero) for threads in (1, 3)]
    assert bool(taken) is (columns > 4 or program is stepped)
    with monkeypatch.context() as patch:
        for module_of in (loop_plan, lanes):
            patch.setattr(module_of, "has_small_axis", lambda *_: False)
        plain = spmd.compile(module)(x, y, zero)
    for results in turned:
        assert [np.asarray(r).tobytes() for r in results] == [np.asarray(r).tobytes() for r in plain]
