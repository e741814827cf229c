"""BLAS and LAPACK routines for native code: of NumPy's own library, else the pointers that SciPy exports.

NumPy's wheels contain an OpenBLAS with 64-bit integers. Native code calls the same one, so that both back ends give the
same bits and share one thread pool; it is also newer than SciPy's. The symbol names of other BLAS libraries that NumPy
may be built with are unknown; SciPy's are always known.
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

#: Symbols of Fortran routines in the OpenBLAS of NumPy's wheels.
_IN_NUMPY = "scipy_{name}_64_"
_IN_NUMPY_THREADS = "scipy_openblas_{verb}_num_threads64_"


@dataclass(frozen=True)
class Routine:
    """A routine with Fortran's calling convention: arguments by address, integers of LLVM type `integer`.

    `symbol` is its name in modules; `address` its address in this process.
    """

    symbol: str
    integer: str
    address: int = 0


@cache
def routine(name: str) -> Routine:
    """Return the BLAS or LAPACK routine `name`: "sgemm", "dpotrf", ..."""
    numpys = _numpy_library()
    symbol = getattr(numpys, _IN_NUMPY.format(name=name), None) if numpys is not None else None
    if symbol is not None:
        return Routine(name, "i64", ctypes.cast(symbol, ctypes.c_void_p).value or 0)
    return Routine(name, "i32", _exported_by_scipy(name))


def linked(name: str) -> Routine:
    """Return the routine `name` as exported by a BLAS with 32-bit integers, to be resolved by a linker."""
    return Routine(f"{name}_", "i32")


def check_sizes(routine: Routine, sizes: Iterable[int], op: Op) -> None:
    """Raise CompileError if one of `sizes` does not fit the integers of `routine`, which computes `op`."""
    largest = max(sizes)
    if routine.integer == "i32" and largest >= 1 << 31:
        message = f"the size {largest} does not fit the 32-bit integers of the BLAS library that {routine.symbol} is of"
        raise CompileError(Diagnostic(op.location, message, op.name))


@dataclass(frozen=True)
class ThreadCount:
    """Addresses of the functions that get and set the library's number of threads: `int ()`, `void (int)`."""

    get: int
    set: int


@cache
def thread_count() -> ThreadCount | None:
    """Return the thread functions of the library of `routine`; None if it has none."""
    numpys = _numpy_library()
    names = (_IN_NUMPY_THREADS.format(verb=verb) for verb in ("get", "set"))
    symbols = [getattr(numpys, name, None) for name in names]
    addresses = [ctypes.cast(symbol, ctypes.c_void_p).value or 0 for symbol in symbols if symbol is not None]
    return ThreadCount(*addresses) if len(addresses) == 2 else None


def library() -> Path | None:
    """Return the file of the OpenBLAS in or beside NumPy's package, as in its wheels; None if there is none."""
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
