"""What the parts of lowering ask of the whole."""

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
        """The choices of this compilation."""

    def kernel(self, op: Op) -> Kernel:
        """The kernel of `op`."""

    def on_module(self, module: Module) -> BlockCompiler:
        """Another module compiled with the same options."""

    def entry(self, function: Function) -> tuple[Program, Plan]:
        """The program of a function, and the plan that it was made of."""

    def region_plan(self, op: Op, index: int, donated: frozenset[int] = frozenset()) -> Plan:
        """The plan of region `index` of `op`, whose parameters in `donated` may be overwritten."""
