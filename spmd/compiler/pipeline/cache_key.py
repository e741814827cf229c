"""The key of a compiled program in the compilation cache: everything that its code depends on, listed in one place.

`PARTS` has one entry for each thing that compiling reads. A pass, a back end or a kernel that starts to read something
else (an option, a variable of the environment, a library, a figure of the machine) adds it there. `VARIABLES` lists the
variables of the environment; tests/compiler/test_cache_key.py records which ones a compilation reads.
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
from spmd.analysis.portable import Packer, Places, PortableArray
from spmd.compiler.pipeline.options import Options
from spmd.ir import Function, Module

#: Bytes of constants up to which a program is kept.
_MOST_CONSTANTS = 32 << 20

#: This package, and the one it is built on.
_PACKAGES = (Path(__file__).parents[2], Path(collectives.__path__[0]))

#: Variables that select the code of NumPy, OpenBLAS and the C library, by which constants are folded.
_OF_LIBRARIES = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", "OPENBLAS_CORETYPE", "GLIBC_TUNABLES")

#: Variables of the environment that compiling may read, each with the part of the key that it changes. Those with none
#: say where the cache lies, or how a compiled program runs, and change no code.
VARIABLES: Mapping[str, str | None] = {
    "SPMD_BACKENDS": "options",
    "SPMD_PROCESSOR": "native",
    **dict.fromkeys(("OMP_NUM_THREADS", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"), "threads"),
    **dict.fromkeys(("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"), "overlap"),
    **dict.fromkeys(_OF_LIBRARIES, "environment"),
    **dict.fromkeys(("SPMD_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "COLLECTIVE_TIMEOUT", "COLLECTIVE_ABORT"), None),
    "SPMD_CHECK_IR": None,  # it verifies code and changes none
}


def cache_key(module: Module, function: Function, options: Options, places: Places) -> str | None:
    """The key of `function`, one of `module`, compiled with `options`: 64 hexadecimal digits.

    `places` numbers the ops of `module`. None for a program that is not kept: one with larger constants than are
    worth it, or with attributes that cannot be written to a file.
    """
    assert module.symbols.get(function.symbol) is function, "a program is known by its module"
    content = _program(module, places)
    if content is None:
        return None
    parts = {name: part(module, function, options) for name, part in PARTS.items()}
    return hashlib.sha256(f"{parts!r}\n".encode() + content).hexdigest()


def pickled(data: object) -> bytes | None:
    """`data` as bytes that are the same for equal data, whatever objects it shares; None for what cannot be kept."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True  # objects are written out each time: sharing them does not change the bytes
    try:
        pickler.dump(data)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError):
        return None
    return file.getvalue()


def _program(module: Module, places: Places) -> bytes | None:
    """The whole module: ops, types, attributes and constants, and which ops share a place in the source."""
    packer = Packer(places)
    program = packer.op(module)
    arrays = (value for each in packer.tables.attributes for value in each.values() if isinstance(value, PortableArray))
    if sum(array.elements.nbytes for array in arrays) > _MOST_CONSTANTS:
        return None
    return pickled((program, packer.tables))


def _custom_calls(module: Module, function: Function, options: Options) -> object:
    """Which targets that the module names are a user's functions: these take the place of what is built in."""
    calls = (op for op in module.walk() if op.name == "stablehlo.custom_call")
    targets = sorted({str(op["call_target_name"]) for op in calls})
    return [(target, takes_batch(target), is_of_c(target)) for target in targets if is_registered(target)]


@cache
def _sources() -> str:
    files = [file for package in _PACKAGES for file in source_files(package)]
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()


@cache
def _libraries() -> str:
    """Python, and what folds constants."""
    numbers = f"NumPy {np.__version__} {np.__file__}, ml_dtypes {ml_dtypes.__version__}, SciPy {version('scipy')}"
    return f"{sys.version} {numbers} {platform.libc_ver()}"


def _native(module: Module, function: Function, options: Options) -> object:
    """The back end's own: its libraries, and the processor with the features that code is made for."""
    backend = options.native
    return None if backend is None else backend.made_by(backend.processor(options.processor))


def source_files(folder: Path) -> Iterator[str]:
    """Each file of Python below `folder`, with its size and when it was changed."""
    for folder_name, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".py"):
                yield _description(Path(folder_name, name))


def _description(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_size} {status.st_mtime_ns}"


#: What code depends on beside the text of its module. Options hold the process grid, the back ends, donated arguments
#: and all else that the caller chose; what they leave to the machine (None, "auto") has entries of its own.
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
