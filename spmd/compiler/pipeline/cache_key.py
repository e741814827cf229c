"""The key of a program in the compilation cache: everything that its code depends on.

`PARTS` has an entry for each input of compilation. A pass, back end or kernel that depends on a new input (an option,
an environment variable, a library, a machine property) adds it there. `VARIABLES` lists the environment variables;
tests/compiler/test_cache_key.py records which ones a compilation reads.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import ml_dtypes
import numpy as np

import collectives
from spmd.analysis.custom_calls import is_of_c, is_registered, takes_batch
from spmd.analysis.portable import OpNumbers, Packer, PortableArray
from spmd.compiler.pipeline.options import Options
from spmd.ir import Function, Module

#: Largest program that is cached, in bytes of constants.
_MOST_CONSTANTS = 32 << 20

#: The packages whose sources are part of the key.
_PACKAGES = (Path(__file__).parents[2], Path(collectives.__path__[0]))

#: Variables that select code paths of NumPy, OpenBLAS and the C library, which fold constants.
_OF_LIBRARIES = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", "OPENBLAS_CORETYPE", "GLIBC_TUNABLES")

#: Environment variables that compilation may read, with the part of the key that each affects; None if it selects the
#: cache's location or run-time behaviour only.
VARIABLES: Mapping[str, str | None] = {
    "SPMD_BACKENDS": "options",
    "SPMD_PROCESSOR": "native",
    **dict.fromkeys(("OMP_NUM_THREADS", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"), "threads"),
    **dict.fromkeys(("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"), "overlap"),
    **dict.fromkeys(_OF_LIBRARIES, "environment"),
    **dict.fromkeys(("SPMD_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "COLLECTIVE_TIMEOUT", "COLLECTIVE_ABORT"), None),
    "SPMD_CHECK_IR": None,  # verifies code, changes none
}


def cache_key(module: Module, function: Function, options: Options, places: OpNumbers) -> str | None:
    """Return the key of `function`, one of `module`, compiled with `options`: 64 hexadecimal digits.

    `places` numbers the ops of `module`. None if the program is not cacheable: its constants are too large, or an
    attribute cannot be pickled.
    """
    assert module.symbols.get(function.symbol) is function, "a program is known by its module"
    content = _program(module, places)
    if content is None:
        return None
    parts = {name: part(module, function, options) for name, part in PARTS.items()}
    return hashlib.sha256(f"{parts!r}\n".encode() + content).hexdigest()


def pickled(data: object) -> bytes | None:
    """Return `data` pickled so that equal data gives equal bytes, whatever objects it shares; None if it cannot be
    pickled.
    """
    file = io.BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True  # no memo: sharing does not change the bytes
    try:
        pickler.dump(data)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError):
        return None
    return file.getvalue()


def _program(module: Module, places: OpNumbers) -> bytes | None:
    """Return the pickled module: ops, types, attributes and constants, and which ops share a source location; None if
    its constants are too large.
    """
    packer = Packer(places)
    program = packer.op(module)
    arrays = (value for each in packer.tables.attributes for value in each.values() if isinstance(value, PortableArray))
    if sum(array.elements.nbytes for array in arrays) > _MOST_CONSTANTS:
        return None
    return pickled((program, packer.tables))


def _custom_calls(module: Module, function: Function, options: Options) -> object:
    """Return the custom-call targets registered by users, which override built-in ones."""
    calls = (op for op in module.walk() if op.name == "stablehlo.custom_call")
    targets = sorted({str(op["call_target_name"]) for op in calls})
    return [(target, takes_batch(target), is_of_c(target)) for target in targets if is_registered(target)]


@cache
def _sources() -> str:
    files = [file for package in _PACKAGES for file in source_files(package)]
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()


@cache
def _libraries() -> str:
    """Return the versions of Python and of the libraries that fold constants."""
    numbers = f"NumPy {np.__version__} {np.__file__}, ml_dtypes {ml_dtypes.__version__}, SciPy {version('scipy')}"
    return f"{sys.version} {numbers} {platform.libc_ver()}"


def _native(module: Module, function: Function, options: Options) -> object:
    """Return the libraries of the back end, and the processor that it compiles for."""
    backend = options.native
    return None if backend is None else backend.made_by(backend.processor(options.processor))


def source_files(folder: Path) -> Iterator[str]:
    """Yield each Python file below `folder`, with its size and modification time."""
    for folder_name, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".py"):
                yield _description(Path(folder_name, name))


def _description(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_size} {status.st_mtime_ns}"


#: By name, the inputs of compilation besides the module. Options cover the process grid, back ends, donated arguments
#: and other choices of the caller; machine-dependent defaults (None, "auto") have entries of their own.
PARTS: dict[str, Callable[[Module, Function, Options], object]] = {
    "function": lambda module, function, options: function.symbol,
    "options": lambda module, function, options: options,
    "threads": lambda module, function, options: options.thread_count,
    "overlap": lambda module, function, options: options.overlaps,
    "custom calls": _custom_calls,
    "sources": lambda module, function, options: _sources(),
    "libraries": lambda module, function, options: _libraries(),
    "environment": lambda module, function, options: [os.environ.get(name) for name in _OF_LIBRARIES],
    "native": _native,
}
