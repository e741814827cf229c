"""BLAS's and LAPACK's routines for native code: those of NumPy's own library, else those whose pointers SciPy exports.

NumPy's wheels hold an OpenBLAS with 64-bit integers. Native code calls the same one, so that both back ends give the
same bits, one pool of threads serves both, and of the two libraries in the process, SciPy's being the other, the newer
is used. A NumPy that was built on another BLAS does not say how that one spells its names; SciPy always does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op

#: How OpenBLAS's build for NumPy's wheels spells a routine with Fortran's calling convention.
_IN_NUMPY = "scipy_{name}_64_"
_IN_NUMPY_THREADS = "scipy_openblas_{verb}_num_threads64_"


@dataclass(frozen=True)
class Routine:
    """A routine with the calling convention of Fortran: everything by address, integers of the LLVM type `integer`.

    `symbol` is what a module calls it; `address` where it stands in this process.
    """

    symbol: str
    integer: str
    address: int = 0


@cache
def routine(name: str) -> Routine:
    """Return the routine called `name` in BLAS or LAPACK: "sgemm", "dpotrf", ..."""
    numpys = _numpy_library()
    symbol = getattr(numpys, _IN_NUMPY.format(name=name), None) if numpys is not None else None
    if symbol is not None:
        return Routine(name, "i64", ctypes.cast(symbol, ctypes.c_void_p).value or 0)
    return Routine(name, "i32", _exported_by_scipy(name))


def linked(name: str) -> Routine:
    """Return the routine called `name` as any BLAS of 32-bit integers exports it, for a linker to find."""
    return Routine(f"{name}_", "i32")


def check_sizes(routine: Routine, sizes: Iterable[int], op: Op) -> None:
    """CompileError where the integers of `routine`, which computes `op`, do not hold one of `sizes`."""
    largest = max(sizes)
    if routine.integer == "i32" and largest >= 1 << 31:
        message = f"the size {largest} does not fit the 32-bit integers of the BLAS library that {routine.symbol} is of"
        raise CompileError(Diagnostic(op.location, message, op.name))


@dataclass(frozen=True)
class ThreadCount:
    """The addresses of what tells how many threads the library uses, `int ()`, and of what sets it, `void (int)`."""

    get: int
    set: int


@cache
def thread_count() -> ThreadCount | None:
    """Of the library that `routine` finds; None of one that does not say."""
    numpys = _numpy_library()
    names = (_IN_NUMPY_THREADS.format(verb=verb) for verb in ("get", "set"))
    symbols = [getattr(numpys, name, None) for name in names]
    addresses = [ctypes.cast(symbol, ctypes.c_void_p).value or 0 for symbol in symbols if symbol is not None]
    return ThreadCount(*addresses) if len(addresses) == 2 else None


def library() -> Path | None:
    """Return the file of the OpenBLAS that lies beside or in NumPy's package, as its wheels have it; None where none
    does.
    """
    package = Path(np.__file__).parent
    homes = (package.with_name("numpy.libs"), package / ".dylibs")
    return next((file for home in homes for file in home.glob("*openblas*")), None)


@cache
def _numpy_library() -> ctypes.CDLL | None:
    path = library()
    return None if path is None else ctypes.CDLL(str(path))


def _exported_by_scipy(name: str) -> int:
    from scipy.linalg import cython_blas, cython_lapack  # late: SciPy takes a while to load

    exported = cython_blas if name in cython_blas.__pyx_capi__ else cython_lapack
    capsule = exported.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
