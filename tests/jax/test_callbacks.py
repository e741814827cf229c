"""Functions of Python that a JAX program calls run on each process, ordered ones in order; errors name the line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import io_callback  # noqa: E402

import spmd.jax  # noqa: E402

HALF = jax.ShapeDtypeStruct((3,), np.float32)
X = np.arange(3, dtype=np.float32)


def test_pure_callbacks_give_values() -> None:
    step = spmd.jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) / 2, HALF, x + 1) * 2)
    np.testing.assert_array_equal(step(X), X + 1)


def test_ordered_callbacks_come_in_order() -> None:
    seen: list[tuple[str, float]] = []

    def note(tag: str, value: Any) -> Any:
        seen.append((tag, float(value)))
        return np.float32(len(seen))

    def function(x: Any) -> Any:
        scalar = jax.ShapeDtypeStruct((), np.float32)
        first = io_callback(lambda value: note("a", value), scalar, x.sum(), ordered=True)

        def body(i: Any, total: Any) -> Any:
            jax.debug.callback(lambda value: note("loop", value), total, ordered=True)
            return total + i

        total = jax.lax.fori_loop(0, 3, body, first)
        io_callback(lambda value: [note("b", value)].clear(), None, total, ordered=True)
        return total

    step = spmd.jax.jit(function)
    for _ in range(2):
        seen.clear()
        assert step(X) == 4
        assert seen == [("a", 3), ("loop", 1), ("loop", 1), ("loop", 2), ("b", 4)]


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        jax.debug.print("sum {total}, {x}", total=x.sum(), x=x[:2])
        return x

    spmd.jax.jit(function)(X)
    assert capsys.readouterr().out == "sum 3.0, [0. 1.]\n"


def test_what_a_callback_keeps_is_its_own() -> None:
    kept = []
    step = spmd.jax.jit(lambda x: (jax.debug.callback(kept.append, x * 2), x * 2)[1])
    result = step(X)
    result[:] = -1
    step(X + 1)
    np.testing.assert_array_equal(kept[0], X * 2)


def test_each_process_calls_its_own() -> None:
    seen = []

    def function(x: Any) -> Any:
        index, total = jax.lax.axis_index("i"), jax.lax.psum(x, "i")
        jax.debug.callback(lambda index, total: seen.append((int(index), float(total))), index, total)
        return x

    spmd.jax.simulate(function, axes={"i": 3})(np.arange(3, dtype=np.float32))
    assert sorted(seen) == [(0, 3), (1, 3), (2, 3)]


def test_an_error_names_the_line_of_the_user_s_python() -> None:
    def fails(x: Any) -> Any:
        raise RuntimeError("no such luck")

    def function(x: Any) -> Any:
        y = jnp.sin(x)
        return jax.pure_callback(fails, HALF, y)  # here

    line = function.__code__.co_firstlineno + 2
    with pytest.raises(spmd.ExecutionError, match="no such luck") as caught:
        spmd.jax.jit(function)(X)
    text = str(caught.value)
    assert re.match(rf"{re.escape(__file__)}:{line}: stablehlo.custom_call: ", text)
    assert "return jax.pure_callback(fails, HALF, y)  # here\n" in text


def test_the_line_is_the_innermost_of_the_user_s_own() -> None:
    flax = pytest.importorskip("flax.linen")

    class Model(flax.Module):
        @flax.compact
        def __call__(self, x: Any) -> Any:
            return flax.Dense(2)(x)  # here

    model = Model()
    parameters = model.init(jax.random.key(0), X)
    module = spmd.jax.jit(lambda parameters, x: model.apply(parameters, x)).lower(parameters, X)
    (product,) = [op for op in module.walk() if op.name == "stablehlo.dot_general"]
    assert product.location.file == __file__
    assert product.location.quote().splitlines()[0].strip() == "return flax.Dense(2)(x)  # here"


def test_of_a_program_alone_nobody_knows_what_it_calls_back() -> None:
    lowered = jax.jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(np.float32(1))
    with pytest.raises(spmd.CompileError, match=r"the JAX function itself to spmd\.jax\.jit"):
        spmd.compile(lowered)
