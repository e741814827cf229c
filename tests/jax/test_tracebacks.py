"""What a user sees of an error: the frames of the user's own code, and all of them when JAX is told to show all."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import spmd.jax  # noqa: E402

X = np.ones((2, 2), np.float32)


@pytest.fixture(autouse=True)
def filtering() -> Iterator[None]:
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "quiet_remove_frames")
    yield
    jax.config.update("jax_traceback_filtering", before)


def does_not_fit(x: Any) -> Any:
    return x @ jnp.ones((7, 3))


def raises(x: Any) -> Any:
    raise ArithmeticError("no such value")


def calls_back(x: Any) -> Any:
    return jax.pure_callback(raises, jax.ShapeDtypeStruct((), np.float32), x)


def _first_call() -> None:
    spmd.jax.jit(does_not_fit)(X)


def _stacked() -> None:
    spmd.jax.simulate(does_not_fit, axes={"i": 2})(X[None])


def _exported() -> None:
    spmd.jax.export(does_not_fit, X, axes={"i": 2})


def _lowered() -> None:
    spmd.jax.jit(does_not_fit).lower(X)


def _run() -> None:
    spmd.jax.jit(calls_back)(X)


def _bad_argument() -> None:
    spmd.jax.jit(does_not_fit)("text")


def _no_program() -> None:
    spmd.jax.jit(does_not_fit).unshard(X)


def _functions(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize(
    ("call", "inner"),
    [
        *((call, ["does_not_fit"]) for call in (_first_call, _stacked, _exported, _lowered)),
        *((call, []) for call in (_run, _bad_argument, _no_program)),
    ],
)
def test_the_user_s_own_frames_are_shown(call: Callable[[], None], inner: list[str]) -> None:
    with pytest.raises((TypeError, spmd.SpmdError)) as caught:
        call()
    error: BaseException | None = caught.value
    assert error is not None
    assert _functions(error)[1:] == [call.__name__, *inner]
    assert sum("JAX_TRACEBACK_FILTERING=off" in note for note in error.__notes__) == 1
    while (error := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        assert set(_functions(error)) <= {"does_not_fit", "raises", "calls_back", call.__name__}


def test_all_frames_are_shown_when_asked() -> None:
    jax.config.update("jax_traceback_filtering", "off")
    with pytest.raises(TypeError) as caught:
        _first_call()
    names = _functions(caught.value)
    assert names[-1] != "does_not_fit" and "_call" in names and not hasattr(caught.value, "__notes__")
