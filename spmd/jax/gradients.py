"""Comparison of gradients of JAX functions with finite differences, both in 64-bit floats."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from spmd.comparison.exact import widened
from spmd.errors import UsageError
from spmd.io.reading import parse
from spmd.jax.leaves import names_of
from spmd.runtime.compile import compile
from spmd.support.arrays import Array, UserFunction

#: The longer of two step lengths, in units of a leaf's size; the shorter is half, for extrapolation.
_STEP = 1e-3
#: Leaves of at most so many elements are checked element by element, larger ones along random directions.
_SINGLY = 16
#: Relative difference of slopes, between two step lengths or both sides, from which a function counts as not smooth.
_ROUGH = 5e-2
#: Factor by which steps are shortened, to cross fewer kinks, if the slope is too uncertain.
_SHORTER = 1e-2
#: Uncertainty of a slope, in units of the difference between two step lengths.
_MARGIN = 4.0
#: Elements below this fraction of the gradient's size weigh less than the others along a direction.
_LEAST = 1e-3


@dataclass(frozen=True)
class Slope:
    """The slope of the function along a direction of one leaf: by its gradient, and by differences of its values.

    `smooth` is whether steps of two lengths and to both sides agree; otherwise the function has a kink there, and
    nothing follows. `uncertain` is the possible error of the differences.
    """

    leaf: str
    by_gradient: float
    by_differences: float
    scale: float
    smooth: bool = True
    uncertain: float = 0.0

    @property
    def error(self) -> float:
        """The certain part of the difference, relative to the gradient's size; 0 where the function is not smooth."""
        certain = max(abs(self.by_gradient - self.by_differences) - self.uncertain, 0.0)
        return certain / self.scale if self.smooth and self.scale else 0.0


@dataclass(frozen=True)
class GradientComparison:
    """All slopes; `first` is the one with the largest error above `tolerance`, or None."""

    slopes: tuple[Slope, ...]
    tolerance: float

    @property
    def first(self) -> Slope | None:
        worst = max(self.slopes, key=lambda slope: slope.error, default=None)
        return worst if worst is not None and worst.error > self.tolerance else None

    @property
    def compared(self) -> int:
        """The number of directions along which the function is smooth and the gradient was compared."""
        return sum(slope.smooth for slope in self.slopes)

    def __bool__(self) -> bool:
        """Return whether the gradient was compared at all, and agrees."""
        return self.first is None and self.compared > 0

    def __str__(self) -> str:
        if not self.compared:
            return f"nothing was compared: the function is smooth along none of {len(self.slopes)} directions"
        if self.first is None:
            worst = max((slope.error for slope in self.slopes), default=0.0)
            rough = len(self.slopes) - self.compared
            left_out = f"; {rough} were left out, where the function is not smooth" if rough else ""
            return f"the gradient agrees along {self.compared} directions, within {worst:.3g}{left_out}"
        slope = self.first
        return (
            f"the gradient of {slope.leaf} is wrong: along a direction it says {slope.by_gradient:.9g}, and "
            f"differences of the function's values in 64-bit floats say {slope.by_differences:.9g}"
        )


def compare_gradient(
    function: UserFunction,
    *arguments: object,
    directions: int = 3,
    seed: int = 0,
    tolerance: float = 1e-5,
) -> GradientComparison:
    """Compare `jax.grad` of a scalar function of `arguments` (trees of arrays) with finite differences.

    The programs of the function and of its gradient run in 64-bit floats, so that differences show errors of formulas,
    not rounding: for each leaf of floats along `directions` random directions, and besides element by element for small
    leaves, and for large ones along a direction in which each element weighs the same: one that is 0.1 % off is found.
    `tolerance` is relative to the gradient's size. The comparison is false if the gradient differs, or if the function
    is smooth nowhere, so that nothing was compared. Raises UsageError if the function does not return a real scalar or
    takes no floats, CompileError for an op that is not defined in wider floats (bitcast_convert).
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
        raise UsageError(f"compare_gradient: the function must return a real scalar, got {shape}")
    wide = [array.astype(np.float64) for array in given]
    value = _in_wide_floats(of_leaves, given)
    gradient = _in_wide_floats(jax.grad(of_leaves, argnums=tuple(range(len(given)))), given)(wide)
    names = names_of((arguments, {}), list(inspect.signature(function).parameters))
    random = np.random.default_rng(seed)
    slopes = [
        _slope(lambda arrays: float(value(arrays)[0]), wide, at, gradient[at], names[leaf], direction)
        for at, leaf in enumerate(floats)
        for direction in _directions(gradient[at], directions, random)
    ]
    return GradientComparison(tuple(slopes), tolerance)


def _in_wide_floats(function: UserFunction, given: Sequence[Array]) -> Callable[[Sequence[Array]], Sequence[Array]]:
    text = jax.jit(function, keep_unused=True).lower(*given).as_text()
    executable = compile(widened(parse(text, name="<function>")))
    return lambda arrays: executable(*arrays)


def _directions(gradient: Array, count: int, random: np.random.Generator) -> Iterator[Array]:
    """Yield unit vectors of a leaf: of each element, if there are few, and `count` random ones.

    For many elements, also yield one along which each contributes the same to the slope.
    """
    size, shape = gradient.size, gradient.shape
    if size <= _SINGLY:
        yield from np.eye(size).reshape(size, *shape)
    elif count:
        least = max(_LEAST * float(np.sqrt(np.mean(gradient**2))), float(np.finfo(np.float64).tiny))
        weights = random.choice([-1.0, 1.0], shape) / np.maximum(np.abs(gradient), least)
        yield weights / np.linalg.norm(weights)
    for _ in range(count if size else 0):
        direction = random.standard_normal(shape)
        yield direction / np.linalg.norm(direction)


def _slope(
    value: Callable[[Sequence[Array]], float],
    given: Sequence[Array],
    at: int,
    gradient: Array,
    name: str,
    direction: Array,
) -> Slope:
    length = _STEP * max(float(np.sqrt(np.mean(given[at] ** 2))), _STEP)

    def at_distance(step: float) -> float:
        return value([*given[:at], given[at] + step * direction, *given[at + 1 :]])

    parts = gradient * direction
    by_gradient, part = float(np.sum(parts)), float(np.max(np.abs(parts), initial=0.0))
    typical = float(np.linalg.norm(gradient)) / np.sqrt(max(gradient.size, 1))
    here = at_distance(0)
    measured = _differences(at_distance, here, length)
    if measured.uncertain > _ROUGH * _LEAST * part:
        measured = min(measured, _differences(at_distance, here, _SHORTER * length), key=lambda each: each.uncertain)
    whole = max(abs(by_gradient), abs(measured.slope), typical, float(np.finfo(np.float32).tiny))
    # One element that is wrong is found where it differs by a part of what one adds, not of what all of them do.
    scale = min(whole, part) if gradient.size > _SINGLY and part else whole
    return Slope(name, by_gradient, measured.slope, scale, bool(measured.apart <= _ROUGH * whole), measured.uncertain)


@dataclass(frozen=True)
class _Differences:
    """A slope by finite differences, its uncertainty, and how far other step lengths and one-sided slopes deviate."""

    slope: float
    uncertain: float
    apart: float


def _differences(at_distance: Callable[[float], float], here: float, length: float) -> _Differences:
    ahead, behind = at_distance(length), at_distance(-length)
    half_ahead, half_behind = at_distance(length / 2), at_distance(-length / 2)
    coarse, fine = (ahead - behind) / (2 * length), (half_ahead - half_behind) / length
    # How much the slopes on both sides differ: of a smooth function half as much where the step is half as long.
    bend, half_bend = (ahead - 2 * here + behind) / length, 2 * (half_ahead - 2 * here + half_behind) / length
    apart = abs(fine - coarse), abs(bend - 2 * half_bend)
    rounding = 16 * float(np.finfo(np.float64).eps) * abs(here) / length
    # Richardson's extrapolation: the error of a central difference falls with the square of its step.
    return _Differences((4 * fine - coarse) / 3, _MARGIN * sum(apart) + rounding, max(apart[0], abs(bend)))
