"""The check and interpreter dialects: checks of results, prints and probes.

A failing check raises ExecutionError with the first elements that differ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.ir.attributes import DenseAttr
from spmd.runtime.process import Process
from spmd.support.arrays import Array, DType, Results, bits_dtype

#: Elementwise agreement of two arrays.
Agree = Callable[[Array, Array], Array]

_SHOWN = 4
_PROBES = "interpreter.probe"
#: Tolerance of the custom call `check.eq` on floats.
_EQ_TOLERANCE = 0.0001


@kernel("check.expect_eq")
def expect_eq(op: Op, context: Context) -> Kernel:
    return _check(op, _equal)


@kernel("check.expect_eq_const")
def expect_eq_const(op: Op, context: Context) -> Kernel:
    return _check(op, _equal, _constant(op))


@kernel("check.expect_almost_eq")
def expect_almost_eq(op: Op, context: Context) -> Kernel:
    return _check(op, _within(op["tolerance"]))


@kernel("check.expect_almost_eq_const")
def expect_almost_eq_const(op: Op, context: Context) -> Kernel:
    return _check(op, _within(op["tolerance"]), _constant(op))


@kernel("check.expect_close")
def expect_close(op: Op, context: Context) -> Kernel:
    """Check that all elements are within max_ulp_difference, and the largest difference is at
    least min_ulp_difference.
    """
    least, most = op["min_ulp_difference"], op["max_ulp_difference"]
    check = _check(op, _close(most))
    if not least:
        return check

    def call(actual: Array, expected: Array) -> tuple[()]:
        check.call(actual, expected)
        worst = max((int(part.max(initial=0)) for part in _ulps(actual, expected)), default=0)
        if worst < least:
            message = f"the largest difference is {worst} ULP, expected at least {least}"
            raise ExecutionError(Diagnostic(op.location, message, op.name))
        return ()

    return Kernel(call)


@target("check.expect_eq")
def custom_expect_eq(op: Op, context: Context) -> Kernel:
    return _check(op, _equal)


@target("check.expect_almost_eq")
def custom_expect_almost_eq(op: Op, context: Context) -> Kernel:
    return _check(op, _within(0.001))


@target("check.expect_close")
def custom_expect_close(op: Op, context: Context) -> Kernel:
    return _check(op, _close(3))


@target("check.eq")
def custom_eq(op: Op, context: Context) -> Kernel:
    """Check and return true; exact for integers."""
    check = _check(op, _within(_EQ_TOLERANCE))

    def call(actual: Array, expected: Array) -> Array:
        check.call(actual, expected)
        return np.asarray(True)

    return Kernel(call)


def _constant(op: Op) -> Array:
    value = op["value"]
    assert isinstance(value, DenseAttr)
    return value.array


def _check(op: Op, agree: Agree, expected: Array | None = None) -> Kernel:
    def call(actual: Array, other: Array | None = None) -> Results:
        reference = expected if other is None else other
        assert reference is not None
        actual = np.asarray(actual)
        if actual.shape != reference.shape or actual.dtype != reference.dtype:
            message = (
                f"got {actual.dtype} of shape {actual.shape}, expected {reference.dtype} of shape {reference.shape}"
            )
            raise ExecutionError(Diagnostic(op.location, message, op.name))
        agreed = agree(actual, np.asarray(reference))
        if not agreed.all():
            raise ExecutionError(Diagnostic(op.location, _difference(actual, reference, ~agreed), op.name))
        return () if not op.results else None

    return Kernel(call)


def _difference(actual: Array, expected: Array, wrong: Array) -> str:
    count, places = int(wrong.sum()), np.argwhere(wrong)[:_SHOWN]
    shown = "; ".join(
        f"{'element ' + str(place.tolist()) if actual.ndim else 'value'}: "
        f"got {actual[tuple(place)]}, expected {expected[tuple(place)]}"
        for place in places
    )
    return f"{count} of {wrong.size} elements differ: {shown}{'; ...' if count > _SHOWN else ''}"


# --- agreement of elements -------------------------------------------------------------------------------------------


def _equal(actual: Array, expected: Array) -> Array:
    """Return where elements are equal, or both NaN."""
    agreed: Array = (actual == expected) | ((actual != actual) & (expected != expected))
    return agreed


def _within(tolerance: float) -> Agree:
    """Return agreement within `tolerance` for floats, of real and imaginary parts each; infinities and NaNs must be
    equal.
    """

    def agree(actual: Array, expected: Array) -> Array:
        if actual.dtype.kind in "biu" or _is_small_integer(actual.dtype):
            return _equal(actual, expected)
        if actual.dtype.kind == "c":
            return agree(actual.real, expected.real) & agree(actual.imag, expected.imag)
        x, y = actual.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near: Array = np.abs(x - y) <= tolerance
        return near | _equal(x, y)

    return agree


def _close(most: int) -> Agree:
    """Return agreement within `most` ULP; integers must be equal."""

    def agree(actual: Array, expected: Array) -> Array:
        parts = _ulps(actual, expected)
        if not parts:
            return _equal(actual, expected)
        close: Array = np.logical_and.reduce([part <= most for part in parts])
        return close

    return agree


def _is_small_integer(dtype: DType) -> bool:
    return dtype.kind == "V" and dtype.name.startswith(("int", "uint"))


def _ulps(actual: Array, expected: Array) -> list[Array]:
    """Return the distances in ULP, as uint64; for complex arrays, of both parts. Empty for integers.

    The distance of an infinity or NaN from anything else is 2^63.
    """
    if actual.dtype.kind == "c":
        return [*_ulps(actual.real, expected.real), *_ulps(actual.imag, expected.imag)]
    if actual.dtype.kind in "biu" or _is_small_integer(actual.dtype):
        return []
    x, y = _ordered(actual), _ordered(expected)
    apart = np.where(x > y, x - y, y - x)
    finite = _is_finite(actual) & _is_finite(expected)
    same = _equal(actual, expected)
    return [np.where(same, np.uint64(0), np.where(finite, apart, np.uint64(2**63)))]


def _is_finite(array: Array) -> Array:
    finite: Array = np.isfinite(array.astype(np.float64))
    return finite


def _ordered(array: Array) -> Array:
    """Return floats as uint64 in numerical order: neighbours differ by one, and both zeros are equal."""
    width = array.dtype.itemsize
    bits = np.asarray(array, order="C").view(bits_dtype(array.dtype)).astype(np.uint64)
    sign = np.uint64(1 << (8 * width - 1))
    middle = np.uint64(2**63)
    magnitude = bits & (sign - np.uint64(1))
    ordered: Array = np.where(bits & sign != 0, middle - magnitude, middle + magnitude)
    return ordered


# --- prints and probes -----------------------------------------------------------------------------------------------


@kernel("interpreter.print")
def print_value(op: Op, context: Context) -> Kernel:
    """Print a value, with the process if there are several; each line is one write, since processes may be threads."""
    name = f"%{op.operands[0].name_hint}" if op.operands[0].name_hint else str(op.operands[0].type)

    def call(process: Process, operand: Array) -> tuple[()]:
        who = f"process {process.rank} {process.id}: " if process.grid.size > 1 else ""
        sys.stdout.write(f"{op.location}: {who}{name} = {operand}\n")
        return ()

    return Kernel(call, needs_process=True)


def _no_values(process: Process) -> dict[str, list[Array]]:
    """Return the initial state of a process's probes: values by probe id."""
    return {}


@kernel("interpreter.probe")
def probe(op: Op, context: Context) -> Kernel:
    """Return the operand, and append a copy to the values of the probe's id."""
    name = op["probe_id"]

    def call(process: Process, operand: Array) -> Array:
        process.bind(_PROBES, _no_values).setdefault(name, []).append(np.array(operand))
        return operand

    return Kernel(call, needs_process=True, aliases=(0,))


@kernel("check.expect_serialized_eq")
def expect_serialized_eq(op: Op, context: Context) -> Kernel:
    """Check the value that the probe recorded at its `iteration`, counted from 0."""
    name, iteration = op["probe_id"], op["iteration"]
    check = _check(op, _equal)

    def call(process: Process, expected: Array) -> tuple[()]:
        seen = process.bind(_PROBES, _no_values).get(name, [])
        if iteration >= len(seen):
            message = f"probe {name!r} saw {len(seen)} values, none at iteration {iteration}"
            raise ExecutionError(Diagnostic(op.location, message, op.name))
        check.call(seen[iteration], expected)
        return ()

    return Kernel(call, needs_process=True)
