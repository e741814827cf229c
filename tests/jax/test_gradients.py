"""Gradients are compared with differences of the function's values in wider floats: wrong ones are named by leaf."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch.cli import main
from spmd import UsageError
from spmd.jax import compare_gradient


@jax.custom_vjp
def doubled(x: jax.Array) -> jax.Array:
    """Twice x, whose gradient is wrong by a half."""
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (3 * g,))

RANDOM = np.random.default_rng(0)
PARAMETERS = {"w": RANDOM.normal(size=(5, 3)).astype(np.float32), "b": RANDOM.normal(size=3).astype(np.float32)}
X = RANDOM.normal(size=(7, 5)).astype(np.float32)


def right(p: dict[str, jax.Array], x: jax.Array, scale: Any = 1) -> jax.Array:
    return jnp.mean(jax.nn.softmax(jnp.tanh(x @ p["w"]) + scale * p["b"])[:, 0] ** 2)


def wrong(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return right({"w": p["w"], "b": doubled(p["b"])}, x)


def test_gradients() -> None:
    assert compare_gradient(right, PARAMETERS, X)
    found = compare_gradient(wrong, PARAMETERS, X)
    assert found.first is not None and found.first.leaf == "p['b']"
    assert found.first.by_gradient == pytest.approx(1.5 * found.first.by_differences, rel=1e-3)
    assert "the gradient of p['b'] is wrong" in str(found)


def test_small_errors_of_narrow_floats_are_none() -> None:
    """In float32, differences of values that are nearly equal would be all rounding."""
    assert compare_gradient(lambda x: 1e4 + jnp.sum(x**2), X)


def test_a_kink_is_left_out() -> None:
    x = np.float32([1e-9, 1])
    found = compare_gradient(lambda x: jnp.abs(x[0]) + x[1] ** 2, x, directions=0)
    assert (
        found
        and "along 1 directions" in str(found)
        and "1 were left out, where the function is not smooth" in str(found)
    )


def test_what_was_not_compared_does_not_agree() -> None:
    found = compare_gradient(lambda x: jnp.abs(x), np.float32(1e-9))
    assert not found and found.first is None and "nothing was compared" in str(found)


@jax.custom_vjp
def nearly(x: jax.Array) -> jax.Array:
    """x squared; one component of whose gradient is wrong by a thousandth."""
    return x * x


nearly.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g * jnp.ones(x.shape, x.dtype).at[3].set(1.001),))


@pytest.mark.parametrize("size", [4, 200, 50_000])
def test_one_component_that_is_wrong_by_a_thousandth_is_found(size: int) -> None:
    x = np.linspace(0.5, 1.5, size, dtype=np.float32)
    assert not compare_gradient(lambda x: jnp.sum(jnp.sin(nearly(x))), x)
    assert compare_gradient(lambda x: jnp.sum(jnp.sin(x * x)), x)


def test_kinks_of_many_elements_are_no_errors() -> None:
    w = np.random.default_rng(1).normal(size=(300, 50)).astype(np.float32)
    x = np.random.default_rng(2).normal(size=(64, 300)).astype(np.float32)
    found = compare_gradient(lambda w: jnp.mean(jax.nn.relu(x @ w)) + jnp.mean(jnp.abs(jnp.sin(x @ w))), w)
    assert found.first is None, found


def test_what_has_no_gradient() -> None:
    with pytest.raises(UsageError, match="takes no array of floats"):
        compare_gradient(lambda n: n, np.int32(3))
    with pytest.raises(UsageError, match="must return a real scalar"):
        compare_gradient(lambda x: x, X)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "loss.py"
    script.write_text("import jax.numpy as jnp\ndef loss(x, y):\n    return jnp.sum(jnp.sin(x) * y)\n")
    np.savez(tmp_path / "in.npz", x=X, y=X)
    assert main(["compare", "--gradient", f"{script}:loss", "--inputs", str(tmp_path / "in.npz")]) == 0
    assert "the gradient agrees along 8 directions" in capsys.readouterr().out
    assert main(["compare", "--gradient", f"{script}:other", "--inputs", str(tmp_path / "in.npz")]) == 2
