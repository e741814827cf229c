"""A JAX function as one process of many: traced with named axes, lowered for a single device.

The function is traced as by `jax.vmap`, under an environment of named axes, so that collectives and their derivatives
have the same meaning. The primitive `process` then lowers the result as if the program ran on a mesh of these axes,
whose devices need not exist.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import mlir
from jax.ref import Ref
from jax.sharding import AbstractMesh, AxisType

from spmd.errors import UsageError
from spmd.jax.refs import closed_over, with_closed_over, without_refs
from spmd.support.arrays import Tree, UserFunction

Axes = tuple[tuple[str, int], ...]

_process: Any = Primitive("process")
_process.multiple_results = True


def traced(
    function: UserFunction, axes: Axes, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]
) -> tuple[Tree, tuple[Ref, ...]]:
    """Return the `jax.stages.Traced` of `function` as a process of a mesh of `axes`, major first, and refs from
    outside.

    The values of such refs are additional arguments, the last ones, and the traced function returns the results and a
    list of the refs' final values.
    """
    outside: tuple[Ref, ...] = ()

    @functools.wraps(function)
    def process(*args: Tree, **kwargs: Tree) -> Tree:
        nonlocal outside
        jaxpr, shapes = jax.make_jaxpr(function, axis_env=axes, return_shape=True)(*args, **kwargs)
        outside = closed_over(jaxpr)
        if outside:
            return None
        if any(isinstance(constant, jax.core.Tracer) for constant in jaxpr.consts):
            raise UsageError(
                f"{getattr(function, '__name__', 'the function')} takes from outside a value that JAX traced in "
                "another call: give it as an argument, and return it from where it is computed"
            )
        results = _process.bind(*jax.tree.leaves((args, kwargs)), jaxpr=without_refs(jaxpr, axes), axes=axes)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    @functools.wraps(function)
    def process_of_refs(args: tuple[Tree, ...], kwargs: Mapping[str, Tree], values: list[Tree]) -> Tree:
        jaxpr, shapes = jax.make_jaxpr(function, axis_env=axes, return_shape=True)(*args, **kwargs)
        complete = without_refs(with_closed_over(jaxpr, axes, args, kwargs, values), axes)
        results = _process.bind(*jax.tree.leaves((args, kwargs, values)), jaxpr=complete, axes=axes)
        given = results[: len(results) - len(values)]
        return jax.tree.unflatten(jax.tree.structure(shapes), given), results[len(given) :]

    alone = jax.jit(process, keep_unused=True).trace(*args, **kwargs)
    if not outside:
        return alone, ()
    values = [jax.typeof(ref[...]) for ref in outside]
    structs = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]  # type: ignore[no-untyped-call]
    return jax.jit(process_of_refs, keep_unused=True).trace(args, kwargs, structs), outside


def _types(*_: object, jaxpr: ClosedJaxpr, axes: Axes) -> tuple[Any, Any]:
    """Return the types of the results; effects of the axes end here, others are passed on."""
    names = {name for name, _ in axes}
    return jaxpr.out_avals, {effect for effect in jaxpr.effects if getattr(effect, "name", None) not in names}


def _lower(ctx: Any, *operands: Any, jaxpr: ClosedJaxpr, axes: Axes) -> Any:
    names = tuple(name for name, _ in axes)
    mesh: Any = AbstractMesh(tuple(size for _, size in axes), names, axis_types=(AxisType.Auto,) * len(names))
    context = ctx.module_context.replace(axis_context=mlir.SPMDAxisContext(mesh, frozenset(names)))
    ordered = [effect for effect in ctx.tokens_in.effects() if effect in jaxpr.effects]
    results, tokens = _knowing(
        axes,
        lambda: mlir.jaxpr_subcomp(
            context,
            jaxpr.jaxpr,
            ctx.name_stack,
            ctx.tokens_in.subset(ordered),
            [mlir.ir_constant(constant) for constant in jaxpr.consts],
            *operands,
            dim_var_values=ctx.dim_var_values,
            const_lowering=ctx.const_lowering,
            outer_traceback=None,
        ),
    )
    if ordered:
        ctx.set_tokens_out(ctx.tokens_in.update_tokens(tokens))
    return results


def _knowing(axes: Axes, lower: Callable[[], Tree]) -> Tree:
    """Return the result of `lower` with the axes bound: some primitives trace their functions again when lowered.

    `lax.custom_linear_solve` is one of them.
    """
    given: list[Tree] = []

    def within() -> tuple[()]:
        with jax.ensure_compile_time_eval():  # lowering computes concrete values
            given.append(lower())
        return ()

    jax.make_jaxpr(within, axis_env=axes)()
    return given[0]


_process.def_effectful_abstract_eval(_types)
mlir.register_lowering(_process, _lower)
