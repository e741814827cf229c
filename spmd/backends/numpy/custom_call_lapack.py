"""LAPACK custom calls of JAX's `jnp.linalg` on CPU (`lapack_<routine>_ffi`), by SciPy.

Character options are given by their codes. Batches are processed matrix by matrix.

`info` is LAPACK's own; pivots are 1-based as in LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from spmd.analysis.custom_calls import call_attributes
from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel
from spmd.backends.numpy.late import Late
from spmd.backends.numpy.linear_algebra import solve_triangular
from spmd.errors import CompileError, Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.support.arrays import Array, Results

lapack = Late("scipy.linalg.lapack")
#: Options of a call: characters and numbers by name.
Options = dict[str, Any]
#: One matrix (and its companions) -> one array per result.
Routine = Callable[..., tuple[Array | int | None, ...]]
#: Makes a routine from its prefix, which selects the element type, and options.
RoutineMaker = Callable[[str, Options], Routine]

#: info for a matrix that is not passed to LAPACK.
_NOT_FINITE = -4
_PREFIXES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}


#: Values of character options; others are booleans or numbers.
_LETTERS = {
    "uplo": "LU", "side": "LR", "diag": "NU", "trans_x": "NTC", "mode": "ANOSV", "compute_left": "NV",
    "compute_right": "NV",
}  # fmt: skip


class _CallAttributes(dict[str, Any]):
    """The options of a call; CompileError for invalid or missing ones."""

    def __init__(self, op: Op, attributes: Mapping[str, Any]) -> None:
        self._op = op
        super().__init__({name: self._value(name, value) for name, value in attributes.items()})

    def _value(self, name: str, value: object) -> str | int:
        """Return an option: characters are decoded; booleans and other numbers are kept."""
        if isinstance(value, bool) or (name not in _LETTERS and isinstance(value, int)):
            return value
        letter = chr(value) if isinstance(value, int) and 0 < value < 128 else ""
        if not letter or letter not in _LETTERS.get(name, ""):
            self._fail(f"option {name} must be the code of one of {', '.join(_LETTERS.get(name, '?'))}, got {value!r}")
        return letter

    def __missing__(self, name: str) -> Array:
        self._fail(f"option {name} is missing in backend_config")

    def _fail(self, what: str) -> NoReturn:
        raise CompileError(Diagnostic(self._op.location, f"{self._op['call_target_name']}: {what}", self._op.name))


def _options(op: Op) -> Options:
    config = call_attributes(op).get("backend_config")
    return _CallAttributes(op, config if isinstance(config, Mapping) else {})


def routine(name: str, *, prefixes: str = "sdcz", core: int = 2) -> Callable[[RoutineMaker], RoutineMaker]:
    """Register `make(prefix, options) -> Routine` as lapack_<prefix><name>_ffi for each prefix; return a decorator.

    `core` is the rank of the first operand without batch dimensions.
    """

    def add(make: RoutineMaker) -> RoutineMaker:
        for prefix in prefixes:

            def maker(op: Op, context: Context, prefix: str = prefix) -> Kernel:
                return _batched(op, make(prefix, _options(op)), core)

            target(f"lapack_{prefix}{name}_ffi")(maker)
        return make

    return add


def _batched(op: Op, run: Routine, core: int) -> Kernel:
    shape = op.operands[0].tensor.static_shape
    batch = shape[: len(shape) - core]
    results = [(value.tensor.static_shape, value.tensor.dtype) for value in op.results]
    empty = any(0 in value.tensor.static_shape for value in op.operands)

    def call(*arrays: Array) -> Results:
        expected = [np.zeros(*result) for result in results]
        for index in () if empty else np.ndindex(*batch):
            values = run(*(array[index] for array in arrays))
            if len(values) != len(expected):
                text = f"{op['call_target_name']} gives {len(values)} results, the call has {len(expected)}"
                raise ExecutionError(Diagnostic(op.location, text, op.name))
            for result, value in zip(expected, values, strict=True):
                if value is not None:
                    result[index] = value
        return expected[0] if len(expected) == 1 else tuple(expected)

    return Kernel(call)


def _function(prefix: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(lapack, prefix + name)
    return function


def _work(*sizes: int) -> int:
    """Return a workspace size for blocked algorithms."""
    return max(1, 64 * max(sizes))


# --- factorizations --------------------------------------------------------------------------------------------------


@routine("getrf")
def getrf(prefix: str, options: Options) -> Routine:
    factor = _function(prefix, "getrf")

    def run(a: Array) -> tuple[Array | int | None, ...]:
        lu, pivots, info = factor(a)
        return lu, pivots + 1, info

    return run


@routine("potrf")
def potrf(prefix: str, options: Options) -> Routine:
    factor, lower = _function(prefix, "potrf"), options["uplo"] == "L"
    return lambda a: factor(a, lower=lower, clean=False)


@routine("geqrf")
def geqrf(prefix: str, options: Options) -> Routine:
    factor = _function(prefix, "geqrf")
    return lambda a: factor(a, lwork=_work(*a.shape))[:2]


@routine("geqp3")
def geqp3(prefix: str, options: Options) -> Routine:
    factor = _function(prefix, "geqp3")
    return lambda a, pivots: factor(a)[:3]


def _generated(prefix: str, options: Options) -> Routine:
    generate = _function(prefix, "orgqr" if prefix in "sd" else "ungqr")
    return lambda a, tau: (generate(a, tau, lwork=_work(*a.shape))[0],)


def _multiplied(prefix: str, options: Options) -> Routine:
    multiply = _function(prefix, "ormqr" if prefix in "sd" else "unmqr")
    side = "L" if options["left"] else "R"
    transpose = ("T" if prefix in "sd" else "C") if options["transpose"] else "N"
    return lambda a, tau, c: (multiply(side, transpose, a[:, : len(tau)], tau, c, lwork=_work(*c.shape))[0],)


routine("orgqr", prefixes="sd")(_generated)
routine("ungqr", prefixes="cz")(_generated)
routine("ormqr", prefixes="sd")(_multiplied)
routine("unmqr", prefixes="cz")(_multiplied)


@routine("gehrd")
def gehrd(prefix: str, options: Options) -> Routine:
    reduce, low, high = _function(prefix, "gehrd"), options["low"] - 1, options["high"] - 1
    return lambda a: reduce(a, lo=low, hi=high, lwork=_work(*a.shape))


def _tridiagonal(prefix: str, options: Options) -> Routine:
    reduce = _function(prefix, "sytrd" if prefix in "sd" else "hetrd")
    lower = options["uplo"] == "L"
    return lambda a: reduce(a, lower=lower, lwork=_work(*a.shape))


routine("sytrd", prefixes="sd")(_tridiagonal)
routine("hetrd", prefixes="cz")(_tridiagonal)


# --- eigenvalues and singular values ---------------------------------------------------------------------------------


def _singular(name: str) -> Callable[[str, Options], Routine]:
    def make(prefix: str, options: Options) -> Routine:
        decompose, mode = _function(prefix, name), options["mode"]

        def run(a: Array) -> tuple[Array | int | None, ...]:
            u, s, vt, info = decompose(a, compute_uv=mode != "N", full_matrices=mode == "A")
            return (a, s, u, vt, info) if mode != "N" else (a, s, None, None, info)

        return run

    return make


routine("gesdd")(_singular("gesdd"))
routine("gesvd")(_singular("gesvd"))


def _symmetric(prefix: str, options: Options) -> Routine:
    decompose = _function(prefix, "syevd" if prefix in "sd" else "heevd")
    vectors, lower = options["mode"] == "V", options["uplo"] == "L"

    def run(a: Array) -> tuple[Array | int | None, ...]:
        values, basis, info = decompose(a, compute_v=vectors, lower=lower)
        return basis, values, info

    return run


routine("syevd", prefixes="sd")(_symmetric)
routine("heevd", prefixes="cz")(_symmetric)


@routine("geev")
def geev(prefix: str, options: Options) -> Routine:
    decompose = _function(prefix, "geev")
    left, right = options["compute_left"] == "V", options["compute_right"] == "V"

    def run(a: Array) -> tuple[Array | int | None, ...]:
        if not np.isfinite(a).all():  # LAPACK would print an error
            return (*(None,) * (3 if prefix in "cz" else 4), _NOT_FINITE)
        if prefix in "cz":
            values, vl, vr, info = decompose(a, compute_vl=left, compute_vr=right)
            return values, vl if left else None, vr if right else None, info
        real, imaginary, vl, vr, info = decompose(a, compute_vl=left, compute_vr=right)
        vectors = [_from_pairs(v, imaginary) if is_computed else None for v, is_computed in ((vl, left), (vr, right))]
        return real, imaginary, *vectors, info

    return run


def _from_pairs(packed: Array, imaginary: Array) -> Array:
    """Return complex eigenvectors of a real matrix; columns of conjugate pairs hold the real and imaginary part."""
    vectors = packed.astype(np.result_type(packed, np.complex64))
    first = np.flatnonzero(imaginary > 0)
    vectors[:, first] = packed[:, first] + 1j * packed[:, first + 1]
    vectors[:, first + 1] = vectors[:, first].conj()
    return vectors


@routine("gees")
def gees(prefix: str, options: Options) -> Routine:
    decompose, vectors = _function(prefix, "gees"), options["mode"] == "V"

    def run(a: Array) -> tuple[Array | int | None, ...]:
        t, selected, *values, basis, _, info = decompose(lambda *_: None, a, compute_v=vectors)
        return t, basis if vectors else None, *values, selected, info

    return run


# --- systems ---------------------------------------------------------------------------------------------------------


@target(*(f"lapack_{prefix}trsm_ffi" for prefix in _PREFIXES))
def trsm(op: Op, context: Context) -> Kernel:
    options = _options(op)
    transpose = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[options["trans_x"]]
    left, lower, unit = options["side"] == "L", options["uplo"] == "L", options["diag"] == "U"
    return Kernel(lambda a, b: solve_triangular(a, b, left=left, lower=lower, unit=unit, transpose=transpose))


@routine("gtsv", core=1)
def gtsv(prefix: str, options: Options) -> Routine:
    """Solve tridiagonal systems; the first entry of the lower diagonal and the last of the upper one are ignored."""
    solve = _function(prefix, "gtsv")

    def run(below: Array, diagonal: Array, above: Array, b: Array) -> tuple[Array | int | None, ...]:
        if len(diagonal) == 1:  # SciPy rejects empty diagonals
            return below, diagonal, above, b / diagonal[0] if diagonal[0] else b, int(not diagonal[0])
        x, info = solve(below[1:], diagonal, above[:-1], b)[-2:]
        return below, diagonal, above, x, info

    return run


@target("tridiagonal_solve_perturbed_ffi")
def perturbed(op: Op, context: Context) -> Kernel:
    """Solve tridiagonal systems that may be singular: pivots are raised to eps * max |U|, and to normal numbers.

    Source: jax.lax.linalg.tridiagonal_solve, `perturb_singular`.
    """
    prefix = next(letter for letter, dtype in _PREFIXES.items() if dtype == op.operands[0].tensor.dtype)
    factor, solve = _function(prefix, "gttrf"), _function(prefix, "gttrs")

    def run(below: Array, diagonal: Array, above: Array, b: Array) -> tuple[Array | int | None, ...]:
        size = len(diagonal)
        more = max(0, 3 - size)  # SciPy's gttrs needs three equations: append 0 x = 0
        diagonal, b = np.pad(diagonal, (0, more)), np.pad(b, ((0, more), (0, 0)))
        below, above = np.pad(below[1:], (0, more)), np.pad(above[:-1], (0, more))
        lower, pivots, *upper, swaps, _ = factor(below, diagonal, above)
        info = np.finfo(diagonal.dtype)
        least = max(info.eps * max(np.abs(row).max(initial=0) for row in (pivots, *upper)), info.smallest_normal)
        tiny = np.abs(pivots) < least
        pivots[tiny] = np.where(pivots[tiny].real < 0, -least, least)
        return (solve(lower, pivots, *upper, swaps, b)[0][:size],)

    return _batched(op, run, 1)
