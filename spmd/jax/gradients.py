"""Gradients of JAX functions against finite differences, in 64-bit floats, along random directions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from spmd.comparison.exact import widened
from spmd.errors import UsageError
from spmd.io.reading import parse
from spmd.jax.leaves import names_of
from spmd.runtime.compile import compile
from spmd.support.arrays import Array, UserFunction

#: The longest step, in units of a leaf's size; halved once, and the error of what comes is extrapolated.
_STEP = 1e-3
#: Relative difference of slopes, by two lengths of a step or to two sides, from which a function is not smooth there.
_ROUGH = 5e-2


@dataclass(frozen=True)
class Slope:
    """How steep the function is along a direction of one leaf: by its gradient, and by differences of its values.

    `smooth` says whether steps of two lengths and to both sides agree: where they do not, the function has a kink, and
    nothing follows.
    """

    leaf: str
    by_gradient: float
    by_differences: float
    scale: float
    smooth: bool = True

    @property
    def error(self) -> float:
        """The difference, relative to the gradient's size; 0 where the function is not smooth."""
        return abs(self.by_gradient - self.by_differences) / self.scale if self.smooth and self.scale else 0.0


@dataclass(frozen=True)
class GradientComparison:
    """All slopes, and `first`, the worst of those whose error is more than `tolerance`; None where there is none."""

    slopes: tuple[Slope, ...]
    tolerance: float

    @property
    def first(self) -> Slope | None:
        worst = max(self.slopes, key=lambda slope: slope.error, default=None)
        return worst if worst is not None and worst.error > self.tolerance else None

    def __bool__(self) -> bool:
        return self.first is None

    def __str__(self) -> str:
        if self.first is None:
            worst = max((slope.error for slope in self.slopes), default=0.0)
            rough = sum(not slope.smooth for slope in self.slopes)
            left_out = f"; {rough} were left out, where the function is not smooth" if rough else ""
            return f"the gradient agrees along {len(self.slopes) - rough} directions, within {worst:.3g}{left_out}"
        slope = self.first
        return (
            f"the gradient of {slope.leaf} is wrong: along a random direction it says {slope.by_gradient:.6g}, and "
            f"differences of the function's values in 64-bit floats say {slope.by_differences:.6g}"
        )


def compare_gradient(
    function: UserFunction,
    *arguments: object,
    directions: int = 3,
    seed: int = 0,
    tolerance: float = 1e-3,
) -> GradientComparison:
    """Compares `jax.grad` of a function of `arguments` (trees of arrays), which gives a scalar, with differences.

    The function's program is run in 64-bit floats, so that differences are of its formula and not of its rounding:
    for each leaf of floats, along as many random directions. `tolerance` is relative to the gradient's size along
    them. UsageError where the function gives no real scalar or takes no floats, CompileError for an op that has no
    meaning in wider floats (bitcast_convert).
    """
    leaves, tree = jax.tree.flatten(arguments)
    arrays = [np.asarray(leaf) for leaf in leaves]
    floats = [at for at, array in enumerate(arrays) if jax.numpy.issubdtype(array.dtype, np.floating)]
    if not floats:
        raise UsageError("compare_gradient: the function takes no array of floats")

    def of_leaves(*chosen: object) -> object:
        whole: list[object] = list(arrays)
        for at, leaf in zip(floats, chosen, strict=True):
            whole[at] = leaf
        return function(*jax.tree.unflatten(tree, whole))

    given = [arrays[at] for at in floats]
    shape = jax.eval_shape(of_leaves, *given)
    if not hasattr(shape, "shape") or shape.shape != () or not jax.numpy.issubdtype(shape.dtype, np.floating):
        raise UsageError(f"compare_gradient: the function gives {shape}, and a real scalar is needed")
    gradient = jax.grad(of_leaves, argnums=tuple(range(len(given))))(*given)
    value = _in_wide_floats(of_leaves, given)
    names = names_of((arguments, {}), list(inspect.signature(function).parameters))
    random = np.random.default_rng(seed)
    slopes = [
        _slope(value, given, at, np.asarray(gradient[at], np.float64), names[leaf], random)
        for at, leaf in enumerate(floats)
        for _ in range(directions)
        if given[at].size
    ]
    return GradientComparison(tuple(slopes), tolerance)


def _in_wide_floats(function: UserFunction, given: Sequence[Array]) -> Callable[[Sequence[Array]], float]:
    text = jax.jit(function, keep_unused=True).lower(*given).as_text()
    executable = compile(widened(parse(text, name="<function>")))
    return lambda arrays: float(executable(*arrays)[0])


def _slope(
    value: Callable[[Sequence[Array]], float],
    given: Sequence[Array],
    at: int,
    gradient: Array,
    name: str,
    random: np.random.Generator,
) -> Slope:
    wide = [array.astype(np.float64) for array in given]
    direction = random.standard_normal(wide[at].shape)
    direction /= np.linalg.norm(direction)
    length = _STEP * max(float(np.sqrt(np.mean(wide[at] ** 2))), _STEP)

    def at_distance(step: float) -> float:
        return value([*wide[:at], wide[at] + step * direction, *wide[at + 1 :]])

    here, ahead, behind = at_distance(0), at_distance(length), at_distance(-length)
    coarse = (ahead - behind) / (2 * length)
    fine = (at_distance(length / 2) - at_distance(-length / 2)) / length
    bend = abs(ahead - 2 * here + behind) / length  # how much the slopes on both sides differ
    # Richardson's extrapolation: the error of a central difference falls with the square of its step.
    extrapolated = (4 * fine - coarse) / 3
    by_gradient = float(np.sum(gradient * direction))
    typical = float(np.linalg.norm(gradient)) / np.sqrt(max(gradient.size, 1))
    scale = max(abs(by_gradient), abs(extrapolated), typical, float(np.finfo(np.float32).tiny))
    return Slope(name, by_gradient, extrapolated, scale, max(abs(fine - coarse), bend) <= _ROUGH * scale)
