"""spmd runs any StableHLO program as MPI processes.

    module = spmd.load("program.mlir")
    exe = spmd.compile(module, spmd.ProcessGrid(num_replicas=4, num_partitions=2))
    results = exe(*arrays)

Names are loaded when first used: importing spmd starts neither MPI nor anything else.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from os import environ as _environ
from typing import TYPE_CHECKING, Any

from spmd.support import companions as _companions
from spmd.version import __version__ as __version__

if TYPE_CHECKING:
    from collectives.grid import ProcessId as ProcessId
    from spmd import checkpoint as checkpoint
    from spmd import elastic as elastic
    from spmd.backends.custom_calls import register_custom_call as register_custom_call
    from spmd.comparison.compare import compare as compare
    from spmd.compiler.pipeline.verify import verify as verify
    from spmd.compiling import compile as compile
    from spmd.errors import CollectiveError as CollectiveError
    from spmd.errors import CompileError as CompileError
    from spmd.errors import ConversionError as ConversionError
    from spmd.errors import ExecutionError as ExecutionError
    from spmd.errors import ParseError as ParseError
    from spmd.errors import SpmdError as SpmdError
    from spmd.errors import UsageError as UsageError
    from spmd.errors import VerificationError as VerificationError
    from spmd.io.reading import load as load
    from spmd.io.reading import parse as parse
    from spmd.io.saving import save as save
    from spmd.io.saving import serialize as serialize
    from spmd.ir import Function as Function
    from spmd.ir import Module as Module
    from spmd.runtime.executable import Executable as Executable
    from spmd.runtime.exploring import explore as explore
    from spmd.runtime.parallel import run_parallel as run_parallel
    from spmd.runtime.profiling import profile as profile
    from spmd.runtime.simulation import Simulation as Simulation
    from spmd.runtime.simulation import simulate as simulate
    from spmd.sharding_search.autoshard import autoshard as autoshard
    from spmd.support.usage import ProcessGrid as ProcessGrid
    from spmd.viewing.view import view as view

_HOMES = {
    "ProcessGrid": "spmd.support.usage",
    "ProcessId": "collectives.grid",
    "autoshard": "spmd.sharding_search.autoshard",
    "compare": "spmd.comparison.compare",
    "compile": "spmd.compiling",
    "verify": "spmd.compiler.pipeline.verify",
    "explore": "spmd.runtime.exploring",
    "CollectiveError": "spmd.errors",
    "CompileError": "spmd.errors",
    "ConversionError": "spmd.errors",
    "ExecutionError": "spmd.errors",
    "ParseError": "spmd.errors",
    "SpmdError": "spmd.errors",
    "UsageError": "spmd.errors",
    "VerificationError": "spmd.errors",
    "Function": "spmd.ir",
    "Module": "spmd.ir",
    "register_custom_call": "spmd.backends.custom_calls",
    "load": "spmd.io.reading",
    "parse": "spmd.io.reading",
    "Executable": "spmd.runtime.executable",
    "profile": "spmd.runtime.profiling",
    "run_parallel": "spmd.runtime.parallel",
    "save": "spmd.io.saving",
    "serialize": "spmd.io.saving",
    "Simulation": "spmd.runtime.simulation",
    "simulate": "spmd.runtime.simulation",
    "view": "spmd.viewing.view",
}

#: Packages that are loaded when first used, too.
_PACKAGES = ("checkpoint", "elastic", "jax")

__all__ = [*_HOMES, *_PACKAGES]


_companions.check()
_companions.warn_of_llvmlite()
_import_module("collectives.failure").install()
if "SPMD_PROFILE" in _environ:
    _import_module("spmd.runtime.profiling").begin_as_environment_says()

_load = _import_module("collectives.late_names").loaded_when_used(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _import_module(f"spmd.{name}") if name in _PACKAGES else _load(name)


def __dir__() -> list[str]:
    return sorted(__all__)
