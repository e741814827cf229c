"""The protocol by which parts of lowering compile blocks."""

from __future__ import annotations

from typing import Protocol

from spmd.backends.kernels import Kernel, Program
from spmd.compiler.pipeline.options import Options
from spmd.compiler.plan.steps import Plan
from spmd.ir import Function, Module, Op


class BlockCompiler(Protocol):
    """Compiles ops, regions and functions of one module (`spmd.compiler.pipeline.lower.ModuleLowering`)."""

    @property
    def module(self) -> Module:
        """The module being compiled."""

    @property
    def options(self) -> Options:
        """The options of this compilation."""

    def kernel(self, op: Op) -> Kernel:
        """Return the kernel of `op`."""

    def on_module(self, module: Module) -> BlockCompiler:
        """Return a compiler of another module with the same options."""

    def entry(self, function: Function) -> tuple[Program, Plan]:
        """Return the program of a function and its plan."""

    def region_plan(self, op: Op, index: int, donated: frozenset[int] = frozenset()) -> Plan:
        """Return the plan of region `index` of `op`; parameters in `donated` may be overwritten."""
