"""The pass pipeline that runs before scheduling.

Each pass owns the program's entry function and changes it in place; the result is again a valid program that prints,
verifies and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from spmd.compiler.pipeline.options import Options
from spmd.compiler.transforms.combine import combine
from spmd.compiler.transforms.fft_expansion import expand_ffts
from spmd.compiler.transforms.gather_expansion import expand_gathers
from spmd.compiler.transforms.highest_precision import widen_highest
from spmd.compiler.transforms.inline import inline
from spmd.compiler.transforms.loop_invariants import hoist_invariants
from spmd.compiler.transforms.overlap import overlap
from spmd.compiler.transforms.product_legalization import legalize_products
from spmd.compiler.transforms.ragged_all_to_all_expansion import expand_ragged_all_to_all
from spmd.compiler.transforms.random_expansion import expand_generators
from spmd.compiler.transforms.scatter_expansion import expand_scatters
from spmd.compiler.transforms.select_and_scatter_expansion import expand_select_and_scatter
from spmd.compiler.transforms.simplify import Evaluate, remove_dead, simplify
from spmd.compiler.transforms.sort_expansion import expand_sorts
from spmd.compiler.transforms.step_rounding import round_each_step
from spmd.compiler.transforms.transpose_folding import fold_transposes
from spmd.compiler.transforms.unroll import unroll
from spmd.dialects.scatters import SCATTER, is_of_xla, mark_whole_windows
from spmd.ir import Block, Function, Module


@dataclass(frozen=True)
class PassContext:
    """The context of a pass: options, an evaluator of pure ops on constants (None: not evaluable), and whether the
    program was written by an XLA front end.
    """

    options: Options
    evaluate: Evaluate = lambda op, arrays: None
    is_of_xla: bool = False


@dataclass(frozen=True)
class Pass:
    """A pass: `run` changes the block of the entry function."""

    name: str
    run: Callable[[Block, PassContext], None]


def _legalize_products(block: Block, context: PassContext) -> None:
    if context.options.native is not None:
        legalize_products(block, in_fixed_order=context.options.reproducible)


def _for_native_code(rewrite: Callable[[Block], None]) -> Callable[[Block, PassContext], None]:
    """Return a pass that runs only for programs with native code."""

    def run(block: Block, context: PassContext) -> None:
        if context.options.native is not None:
            rewrite(block)

    return run


def _overlap(block: Block, context: PassContext) -> None:
    if context.options.overlaps:
        overlap(block)


def _mark_scatters(block: Block, context: PassContext) -> None:
    if context.is_of_xla:
        for op in block.walk():
            if op.name == SCATTER:
                mark_whole_windows(op)


def _round_each_step(block: Block, context: PassContext) -> None:
    if not context.options.excess_precision:
        round_each_step(block)


#: Passes that also run on the program of one process before processes are stacked.
EXPANSIONS = (
    Pass("scatter-windows", _mark_scatters),
    Pass("ragged-all-to-all-expansion", lambda block, context: expand_ragged_all_to_all(block, context.options.grid)),
)
#: Passes after inlining, which creates the function that they change.
PASSES = (
    *EXPANSIONS,
    Pass("loop-unrolling", lambda block, context: unroll(block)),
    Pass("simplification", lambda block, context: simplify(block, context.evaluate)),
    Pass("step-rounding", _round_each_step),
    Pass("loop-invariant-code-motion", lambda block, context: hoist_invariants(block)),
    Pass("transpose-folding", lambda block, context: fold_transposes(block)),
    Pass("highest-precision", lambda block, context: widen_highest(block)),
    Pass("product-legalization", _legalize_products),
    Pass("select-and-scatter-expansion", _for_native_code(expand_select_and_scatter)),
    Pass("gather-expansion", _for_native_code(expand_gathers)),
    Pass("scatter-expansion", _for_native_code(expand_scatters)),
    Pass("fft-expansion", _for_native_code(expand_ffts)),
    Pass("sort-expansion", _for_native_code(expand_sorts)),
    Pass("random-expansion", _for_native_code(expand_generators)),
    Pass("collective-combining", lambda block, context: combine(block, context.options.combine_threshold)),
    Pass("collective-overlap", _overlap),
    Pass("dead-code-elimination", lambda block, context: remove_dead(block)),
)
INLINING = "inlining"
#: Names of all passes, in order.
NAMES = (INLINING, *(each.name for each in PASSES))


def run_passes(module: Module, function: Function, context: PassContext) -> Function:
    """Return `function` as it is scheduled: inlined, after all passes."""
    for _, flat in after_each(module, function, context):
        result = flat
    return result


def after_each(module: Module, function: Function, context: PassContext) -> Iterator[tuple[str, Function]]:
    """Yield each pass's name and the function after it; the function is changed in place by the next pass."""
    context = replace(context, is_of_xla=is_of_xla(module))
    flat = inline(module, function)
    yield INLINING, flat
    for each in PASSES:
        each.run(flat.body, context)
        yield each.name, flat


def expanded(module: Module, function: Function, options: Options) -> Function:
    """Return `function` as it is stacked: fully inlined; CompileError if that is too large."""
    flat = inline(module, function, whole=True)
    for each in EXPANSIONS:
        each.run(flat.body, PassContext(options, is_of_xla=is_of_xla(module)))
    return flat


def with_function(module: Module, function: Function) -> Module:
    """Return `module` with its function of that name replaced by `function`, for printing."""
    ops = [function if isinstance(op, Function) and op.symbol == function.symbol else op for op in module.body.ops]
    called = {inner.attributes.get("callee") for inner in function.walk()}
    kept = [op for op in ops if op is function or not isinstance(op, Function) or op.symbol in called or op.is_public]
    return module.with_ops(kept)
