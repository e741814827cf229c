"""Lowering of IR to programs: makes the kernel of each op and emits blocks as programs.

`ModuleLowering` is the `Context` of kernel makers: it compiles regions and functions, and vectorizes scalar regions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.constants import constant_array, constant_elements
from spmd.backends.kernels import Kernel, Program, make_kernel
from spmd.compiler.pipeline.compilation_cache import CachedProgram
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

    # --- interface of kernel makers ---

    def lookup(self, symbol: str, op: Op) -> Function:
        """Return the function `symbol`, which must have a body; CompileError at `op` otherwise."""
        function = self._functions.get(symbol)
        if function is None or function.is_declaration:
            raise CompileError(Diagnostic(op.location, f"no function @{symbol} with a body", op.name))
        return function

    def function(self, symbol: str, op: Op) -> Program:
        """Return the compiled program of function `symbol`."""
        if symbol not in self._programs:
            self._programs[symbol] = self.entry(self.lookup(symbol, op))[0]
        return self._programs[symbol]

    def region(self, op: Op, index: int) -> Program:
        """Return the program of region `index` of `op`: (process, *block arguments, *captured values of `op`)."""
        return emit(self.region_plan(op, index), self.options.watch)

    def loop_body(self, op: Op, index: int) -> tuple[Program, tuple[int, ...]]:
        """Return region `index` of `op` as a loop body, and the carried positions whose arrays it overwrites."""
        return loop_body(self, op, index)

    def region_plan(self, op: Op, index: int, donated: frozenset[int] = frozenset()) -> Plan:
        """Return the plan of a region; parameters in `donated` may be overwritten."""
        block = op.regions[index].block
        return self._plan(block, [*block.arguments, *captured_values(op)], donated)

    def on_grid(self, grid: ProcessGrid) -> ModuleLowering:
        """Return a lowering of the same module for the processes of another grid."""
        return ModuleLowering(self.module, replace(self.options, grid=grid))

    def on_module(self, module: Module) -> ModuleLowering:
        """Return a lowering of another module for the same processes."""
        return ModuleLowering(module, self.options)

    def vectorized(self, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
        """Return region `index` of `op`, on scalars, as a function on whole arrays."""
        return vectorized(self, op, index)

    # --- programs ---

    def entry(self, function: Function) -> tuple[Program, Plan]:
        """Return the program of a function, with the functions it calls inlined, and its plan."""
        cached = CachedProgram(self.module, function, self.options)
        plan = cached.get(self._step)
        if plan is None:
            flat = self.flatten(function)
            self._compile_called(flat)
            plan = self._plan_of(flat, donated_arguments(function, self.options.donate))
            cached.put(plan)
        return emit(plan, self.options.watch), plan

    def _plan_of(self, flat: Function, donated: frozenset[int] = frozenset()) -> Plan:
        return self._plan(flat.body, list(flat.body.arguments), donated, of_function=True)

    def _compile_called(self, flat: Function) -> None:
        """Compile functions whose calls are not inlined, callees first, without recursion."""
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
        """Return the function after all passes (spmd.compiler.pipeline.passes)."""
        return run_passes(self.module, function, self.pass_context)

    def timed(self, function: Function, watch: Watch) -> Program:
        """Return the program of a flattened function with each unit a call of its own, wrapped in `watch`."""
        block = function.body
        return emit(self._plan(block, list(block.arguments), frozenset(), split_steps=True), watch)

    @property
    def pass_context(self) -> PassContext:
        """The context of the passes."""
        return PassContext(self.options, self._evaluate)

    def _plan(
        self,
        block: Block,
        parameters: list[Value],
        donated: frozenset[int],
        *,
        of_function: bool = False,
        split_steps: bool = False,
    ) -> Plan:
        plan = Plan(parameters, {}, [], list(block.terminator.operands), {})
        watch = self.options.watch
        for op in block.ops[:-1]:
            if (array := constant_array(op)) is not None:
                plan.constants[op.result] = aligned(array)
        offered = [parameters[index] for index in sorted(donated)] if of_function and watch is None else []
        split_steps = split_steps or (watch is not None and not times_parts(watch))
        scheduled = self.schedule(block, offered, split_steps=split_steps, check_memory=True)
        plan.steps = plan_steps(scheduled, self.options.native, self._step, watch)
        plan_buffers(plan, donated)
        return plan

    def schedule(
        self, block: Block, donated: Sequence[Value] = (), *, split_steps: bool = False, check_memory: bool = False
    ) -> Schedule:
        """Return the schedule of `block`; see `spmd.compiler.schedule.schedule.schedule` for the parameters."""
        aliases: Aliases = lambda op: self.kernel(op).aliases  # noqa: E731
        return schedule(block, self.target, donated, aliases, split_steps=split_steps, check_memory=check_memory)

    @cached_property
    def target(self) -> Target | None:
        """The target of native code; None if Python runs all ops."""
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
        """Return the kernel of `op`, specialized at run time if its types are dynamic; equal ops share one."""
        key = _kernel_key(op)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = specializing_kernel(op, self) if needs_specialization(op) else make_kernel(op, self)
            if key is not None:
                self._kernels[key] = kernel
        return kernel

    def _evaluate(self, op: Op, arrays: Sequence[Array | None]) -> tuple[Array, ...] | None:
        """Run a pure op at compile time; None if that fails or needs a process."""
        try:
            kernel = self.kernel(op)
            if kernel.needs_process:
                return None
            with np.errstate(all="ignore"):
                result = kernel.call(*arrays)
        except (CompileError, ArithmeticError, ValueError, TypeError):
            return None
        return result if isinstance(result, tuple) else (result,)


def _kernel_key(op: Op) -> Hashable | None:
    """Return a key of ops that share a kernel; None if the kernel of `op` may depend on more.

    Such as constant operands, and the location that arith's division reports.
    """
    if op.definition is None or Trait.ELEMENTWISE not in op.definition.traits or op.definition.dialect == "arith":
        return None
    return None if any(constant_elements(operand) is not None for operand in op.operands) else op.likeness
