"""ir -> programs: makes each op's kernel and lays blocks out as programs.

`ModuleLowering` is the `Context` that kernel makers are given: it compiles regions and functions, and regions of
scalars as functions on whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.constants import constant_array, constant_elements
from spmd.backends.kernels import Kernel, Program, make_kernel
from spmd.compiler.pipeline.compilation_cache import KeptProgram
from spmd.compiler.pipeline.dynamic import needs_specialization, specializing_kernel
from spmd.compiler.pipeline.options import Options
from spmd.compiler.pipeline.passes import PassContext, run_passes
from spmd.compiler.plan.donation import donated_arguments
from spmd.compiler.plan.emit import emit
from spmd.compiler.plan.native_regions import plan_steps, times_parts
from spmd.compiler.plan.steps import Plan, PlanStep, plan_buffers
from spmd.compiler.schedule.schedule import Aliases, Schedule, schedule
from spmd.compiler.schedule.target import Target
from spmd.compiler.schedule.watching import Watch
from spmd.compiler.transforms.donate import loop_body
from spmd.compiler.transforms.vectorize import vectorized
from spmd.dialects.calls import CALLS
from spmd.dialects.core import Trait
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Function, Module, Op, Value, captured_values
from spmd.ir.attributes import aligned
from spmd.support.arrays import Array


class ModuleLowering:
    """Compiles the functions and regions of one module."""

    def __init__(self, module: Module, options: Options) -> None:
        self.module = module
        self.options = options
        self._functions = {function.symbol: function for function in module.functions}
        self._programs: dict[str, Program] = {}
        self._kernels: dict[Hashable, Kernel] = {}

    # --- what kernel makers ask for ---

    def lookup(self, symbol: str, op: Op) -> Function:
        """The function `symbol`; CompileError at `op` when there is none."""
        function = self._functions.get(symbol)
        if function is None or function.is_declaration:
            raise CompileError(Diagnostic(op.location, f"no function @{symbol} with a body", op.name))
        return function

    def function(self, symbol: str, op: Op) -> Program:
        """The function `symbol`, compiled once."""
        if symbol not in self._programs:
            self._programs[symbol] = self.entry(self.lookup(symbol, op))[0]
        return self._programs[symbol]

    def region(self, op: Op, index: int) -> Program:
        """Region `index` of `op`: its program takes (process, *block arguments, *captured values of `op`)."""
        return emit(self.region_plan(op, index), self.options.watch)

    def loop_body(self, op: Op, index: int) -> tuple[Program, tuple[int, ...]]:
        """Region `index` of `op` as a loop's body, and the carried positions whose arrays it overwrites."""
        return loop_body(self, op, index)

    def region_plan(self, op: Op, index: int, donated: frozenset[int] = frozenset()) -> Plan:
        """The plan of a region, whose parameters in `donated` may be overwritten."""
        block = op.regions[index].block
        return self._plan(block, [*block.arguments, *captured_values(op)], donated)

    def on_grid(self, grid: ProcessGrid) -> ModuleLowering:
        """The same module compiled for the processes of another grid."""
        return ModuleLowering(self.module, replace(self.options, grid=grid))

    def on_module(self, module: Module) -> ModuleLowering:
        """Another module compiled for the same processes."""
        return ModuleLowering(module, self.options)

    def vectorized(self, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
        """Region `index` of `op`, whose arguments are scalars, as a function on whole arrays."""
        return vectorized(self, op, index)

    # --- building ---

    def entry(self, function: Function) -> tuple[Program, Plan]:
        """The program of a function with everything it calls inlined."""
        kept = KeptProgram(self.module, function, self.options)
        plan = kept.get(self._step)
        if plan is None:
            flat = self.flatten(function)
            self._compile_called(flat)
            plan = self._plan_of(flat, donated_arguments(function, self.options.donate))
            kept.put(plan)
        return emit(plan, self.options.watch), plan

    def _plan_of(self, flat: Function, donated: frozenset[int] = frozenset()) -> Plan:
        return self._plan(flat.body, list(flat.body.arguments), donated, of_function=True)

    def _compile_called(self, flat: Function) -> None:
        """Compiles the functions whose calls stay calls, those that others call first: no stack grows with them."""
        below = [flat]
        while below:
            calls = (op for op in below[-1].walk() if op.name in CALLS)
            missing = next((op for op in calls if op[CALLS[op.name]] not in self._programs), None)
            if missing is not None:
                below.append(self.flatten(self.lookup(missing[CALLS[missing.name]], missing)))
                continue
            done = below.pop()
            if below:
                self._programs[done.symbol] = emit(self._plan_of(done), self.options.watch)

    def flatten(self, function: Function) -> Function:
        """The function as it will be scheduled (spmd.compiler.pipeline.passes)."""
        return run_passes(self.module, function, self.pass_context)

    def timed(self, function: Function, watch: Watch) -> Program:
        """The program of a flattened function as `entry` makes it, but each unit apart: `watch` is called around it."""
        block = function.body
        return emit(self._plan(block, list(block.arguments), frozenset(), apart=True), watch)

    @property
    def pass_context(self) -> PassContext:
        """What passes ask for."""
        return PassContext(self.options, self._evaluate)

    def _plan(
        self,
        block: Block,
        parameters: list[Value],
        donated: frozenset[int],
        *,
        of_function: bool = False,
        apart: bool = False,
    ) -> Plan:
        plan = Plan(parameters, {}, [], list(block.terminator.operands), {})
        watch = self.options.watch
        for op in block.ops[:-1]:
            if (array := constant_array(op)) is not None:
                plan.constants[op.result] = aligned(array)
        offered = [parameters[index] for index in sorted(donated)] if of_function and watch is None else []
        apart = apart or (watch is not None and not times_parts(watch))
        scheduled = self.schedule(block, offered, apart=apart, runs_here=True)
        plan.steps = plan_steps(scheduled, self.options.native, self._step, watch)
        plan_buffers(plan, donated)
        return plan

    def schedule(
        self, block: Block, donated: Sequence[Value] = (), *, apart: bool = False, runs_here: bool = False
    ) -> Schedule:
        """What runs of `block`, and how. `donated`: arguments whose memory results may take over.

        `runs_here`: it is compiled to run in this process, whose memory it must fit into.
        """
        aliases: Aliases = lambda op: self.kernel(op).aliases  # noqa: E731
        return schedule(block, self.target, donated, aliases, apart=apart, runs_here=runs_here)

    @cached_property
    def target(self) -> Target | None:
        """What native code can do; None where all ops are run by Python."""
        backend, options = self.options.native, self.options
        if backend is None:
            return None
        processor = backend.processor(options.processor)
        return backend.target(options.thread_count, processor, in_fixed_order=options.reproducible)

    def _step(self, op: Op) -> PlanStep:
        return PlanStep(
            op, self.kernel(op), [*op.operands, *(captured_values(op) if op.regions else ())], list(op.results)
        )

    def kernel(self, op: Op) -> Kernel:
        """The kernel of `op`, specialized while running when its types are dynamic; one for all of its likes."""
        key = _likeness(op)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = specializing_kernel(op, self) if needs_specialization(op) else make_kernel(op, self)
            if key is not None:
                self._kernels[key] = kernel
        return kernel

    def _evaluate(self, op: Op, arrays: Sequence[Array | None]) -> tuple[Array, ...] | None:
        """Runs a pure op while compiling; None when it cannot run here (it will then fail, or not, when it runs)."""
        try:
            kernel = self.kernel(op)
            if kernel.needs_process:
                return None
            with np.errstate(all="ignore"):
                result = kernel.call(*arrays)
        except (CompileError, ArithmeticError, ValueError, TypeError):
            return None
        return result if isinstance(result, tuple) else (result,)


def _likeness(op: Op) -> Hashable | None:
    """What ops of one kernel have in common; None of an op whose kernel may depend on more.

    Constant operands are such, and the place that a division of arith's names when it fails.
    """
    if op.definition is None or Trait.ELEMENTWISE not in op.definition.traits or op.definition.dialect == "arith":
        return None
    return None if any(constant_elements(operand) is not None for operand in op.operands) else op.likeness
