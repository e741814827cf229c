"""Modules as arguments and results, as equinox has them: arrays are leaves, the rest is static as in filter_jit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import spmd.jax  # noqa: E402


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True)
class Layer:
    """Each field is a child, as each of an equinox module is; `activation`, `times` and `name` are no arrays."""

    weight: Any
    activation: Any = jax.nn.relu
    times: Any = 1
    name: Any = "layer"
    inner: Any = None

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        return [(jax.tree_util.GetAttrKey(key), value) for key, value in vars(self).items()], None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Layer:
        return cls(*children)

    def __call__(self, x: Any) -> Any:
        for _ in range(self.times):
            x = self.activation(x @ self.weight)
        if self.name == "shifted":
            x = x + 1
        return x if self.inner is None else self.inner(x)


def layers() -> Layer:
    random = np.random.default_rng(0)
    first, second = (random.normal(size=(3, 3)).astype(np.float32) for _ in range(2))
    return Layer(first, inner=Layer(jnp.asarray(second), jnp.tanh, 2))


X = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


def test_arrays_are_leaves_and_the_rest_is_static() -> None:
    module = layers()
    np.testing.assert_allclose(spmd.jax.jit(lambda m, x: m(x))(module, X), module(X), rtol=1e-5)
    np.testing.assert_allclose(spmd.jax.jit(lambda x, *, m: m["m"](x))(X, m={"m": module}), module(X), rtol=1e-5)


@pytest.mark.parametrize("change", [{"times": 3}, {"activation": jnp.sin}, {"name": "shifted"}, {"inner": None}])
def test_what_is_static_has_a_program_of_its_own(change: dict[str, Any]) -> None:
    module, traced = layers(), 0

    def function(module: Any, x: Any) -> Any:
        nonlocal traced
        traced += 1
        return module(x)

    step = spmd.jax.jit(function)
    for each in (module, replace(module, **change), module):
        np.testing.assert_allclose(step(each, X), each(X), rtol=1e-5)
    assert traced == 2
    other = replace(module, weight=np.ones((3, 3), np.float32))
    np.testing.assert_allclose(step(other, X), other(X), rtol=1e-5)
    assert traced == 2


def trained(module: Layer, x: Any) -> tuple[Layer, Any]:
    def loss(weights: Any) -> Any:
        return jnp.mean(replace(module, weight=weights[0], inner=replace(module.inner, weight=weights[1]))(x) ** 2)

    weights = (module.weight, module.inner.weight)
    value, slopes = lax.pmean(jax.value_and_grad(loss)(weights), "processes")
    first, second = (weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True))
    return replace(module, weight=first, inner=replace(module.inner, weight=second)), value


def test_a_trained_module_is_given_back_with_what_is_static() -> None:
    step, module, values = spmd.jax.jit(trained), layers(), []
    for _ in range(4):
        module, value = step(module, X)
        values.append(float(value))
    assert values == sorted(values, reverse=True) and values[-1] < values[0]
    assert module.activation is jax.nn.relu and module.name == "layer" and module.times == 1
    assert isinstance(module.weight, np.ndarray) and module.inner.activation is jnp.tanh


def test_modules_run_in_python_where_jit_is_disabled() -> None:
    module, want = layers(), spmd.jax.jit(trained)(layers(), X)
    with jax.disable_jit():
        got = spmd.jax.jit(trained)(module, X)
    assert got[0].activation is jax.nn.relu
    np.testing.assert_allclose(got[0].weight, want[0].weight, rtol=1e-4, atol=1e-6)


def test_simulated_modules_have_stacked_arrays() -> None:
    module = layers()
    stacked = replace(module, weight=np.stack([module.weight, 2 * module.weight]), inner=None)
    got = spmd.jax.simulate(lambda m, x: m(x), axes={"processes": 2})(stacked, X[None])
    alone = replace(module, inner=None)
    np.testing.assert_allclose(got, np.stack([alone(X), 2 * alone(X)]), rtol=1e-5)


def test_what_cannot_be_hashed_is_refused() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(spmd.UsageError, match="of type Unhashable, which cannot be hashed"):
        spmd.jax.jit(lambda m, x: x)(replace(layers(), name=Unhashable()), X)


def test_scalars_of_other_registered_classes_are_arrays() -> None:
    """As under jax.jit, which takes such nodes."""
    step = spmd.jax.jit(lambda m, x: x * m.times)
    state = Layer(X, activation=None, times=2, name=None)
    np.testing.assert_array_equal(step(state, X), 2 * X)
    assert len(step.lower(state, X).function("main").type.inputs) >= 2
