"""Tracing and lowering of a JAX function for given forms: for one process, or in the global view."""

from __future__ import annotations

import contextlib
import functools
import linecache
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any, NoReturn

import jax
from jax.ref import Ref

from spmd.compiler.pipeline.options import CompileOptions
from spmd.errors import UsageError
from spmd.ir import Module
from spmd.jax import process_view
from spmd.jax.equations import equations
from spmd.jax.leaves import AbstractLeaf
from spmd.jax.lowering import lower_traced
from spmd.jax.module import drop_shardings, mesh_size, module_of, set_processes
from spmd.jax.modules import Results
from spmd.jax.places import raising_line, user_line
from spmd.jax.process_view import Axes
from spmd.jax.refs import closed_over, of_values
from spmd.jax.wrapped import has_shardings, is_jitted, trace
from spmd.support.arrays import Tree, UserFunction

#: Inserts static arguments: (args, kwargs) to (args, kwargs).
Insert = Callable[[tuple[Tree, ...], Mapping[str, Tree]], tuple[tuple[Tree, ...], Mapping[str, Tree]]]

_UNBOUND = re.compile(r"unbound axis name: (\S+?)\.?(?:\s|$)")


@dataclass(frozen=True)
class Lowered:
    """A lowered function. With `is_global` it is written for whole arrays, and the module has shardings.

    `kept` are the leaves of the arguments that the module takes. `tokens` is the number of tokens before them, and
    before the results, which keep callbacks in order. `given` has the static results. `outside` are refs that the
    function closes over, whose values follow the arguments. `updates` follow the results: the final values of the refs
    among the arguments and in `outside`.
    """

    module: Module
    processes: int
    is_global: bool
    results: tuple[AbstractLeaf, ...]
    out_tree: Tree
    given: Results
    kept: tuple[int, ...]
    tokens: int
    outside: tuple[Ref, ...] = ()
    updates: tuple[AbstractLeaf, ...] = ()

    def donate(self, leaves: Sequence[int]) -> CompileOptions:
        """Return the option that donates the module's arguments of `leaves`; empty if there are none."""
        places = tuple(self.tokens + self.kept.index(leaf) for leaf in leaves if leaf in self.kept)
        return {"donate": places} if places else {}


def lower(
    function: UserFunction,
    axes: Axes,
    insert: Insert,
    tree: Tree,
    forms: Sequence[AbstractLeaf],
    processes: int | None = None,
) -> Lowered:
    """Lower `function` for arguments whose tree (args, kwargs) is `tree` and whose leaves have `forms`.

    `insert` inserts static arguments. `processes` is the number of processes in the global view, if the function has no
    mesh.
    """
    args, kwargs = jax.tree.unflatten(tree, [form.struct for form in forms])
    is_cut = processes is not None or any(form.sharding is not None for form in forms)
    given = Results()
    refs = [place for place, form in enumerate(forms) if form.is_ref]
    if refs and has_shardings(function):
        _refuse_refs(function)
    traced, is_global, outside = _trace(function, axes, insert, args, kwargs, is_cut, given, refs)
    if is_global and (refs or closed_over(traced.jaxpr)):
        _refuse_refs(function)
    lowered = lower_traced(traced)
    module = module_of(lowered, name_of(function))
    if not is_global:
        drop_shardings(module)
    if processes is None:
        processes = mesh_size(module) if is_global else math.prod(size for _, size in axes)
    set_processes(module, processes)
    kept = lowered._lowering.compile_args.get("kept_var_idx", range(len(forms) + len(outside)))
    out = traced.out_info
    updates: list[Tree] = []
    for is_there in (bool(outside), bool(refs)):
        if is_there:
            out, values = out
            updates = [*values, *updates]
    results, out_tree = jax.tree.flatten(out)
    shown, updated = (
        tuple(AbstractLeaf(tuple(leaf.shape), leaf.dtype, bool(leaf.weak_type)) for leaf in leaves)
        for leaves in (results, updates)
    )
    tokens = sum("jax.token" in entry for entry in module.function("main").argument_attributes)
    return Lowered(module, processes, is_global, shown, out_tree, given, tuple(sorted(kept)), tokens, outside, updated)


def _refuse_refs(function: UserFunction) -> NoReturn:
    raise UsageError(f"{name_of(function)} is of the global view, which takes no jax.Ref: give it arrays")


def refuse_axes(function: UserFunction, axes: Axes | None, is_global: bool, taker: str) -> None:
    """Raise UsageError if `taker` was given axes for a function of the global view, which has a mesh."""
    if is_global and axes is not None:
        raise UsageError(f"{name_of(function)} is of the global view, which has its mesh: give {taker} no axes")


def name_of(function: UserFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def described(maker: str, function: UserFunction, axes: Axes | None) -> str:
    """Return `<maker of function over axis=size>`, the repr of what `maker` made of a function."""
    over = "" if axes is None else " over " + ", ".join(f"{name}={size}" for name, size in axes)
    return f"<{maker} of {name_of(function)}{over}>"


def _trace(
    function: UserFunction,
    axes: Axes,
    insert: Insert,
    args: Tree,
    kwargs: Tree,
    is_cut: bool,
    given: Results,
    refs: Sequence[int],
) -> tuple[Tree, bool, tuple[Ref, ...]]:
    """Return the traced function, whether it is in the global view (then lowered by JAX itself), and refs from outside.

    With `is_cut` arguments have shardings, so that it is. `refs` are leaves of the arguments that are refs.
    """
    if is_jitted(function) and not refs:
        with contextlib.suppress(UnboundAxisError), axes_in_messages(axes, function):
            all_args, all_kwargs = insert(args, kwargs)
            traced = trace(function, all_args, all_kwargs)
            if is_cut or _is_global(traced):
                return traced, True, ()

    @functools.wraps(function)
    def complete(*args: Tree, **kwargs: Tree) -> Tree:
        all_args, all_kwargs = insert(args, kwargs)
        return given.arrays(function(*all_args, **all_kwargs))

    called: UserFunction = of_values(complete, refs) if refs else complete
    if is_cut:
        with axes_in_messages(axes, function):
            return jax.jit(called, keep_unused=True).trace(*args, **kwargs), True, ()
    with axes_in_messages(axes, function):
        traced, outside = process_view.traced(called, axes, args, kwargs)
    if _is_global(traced):
        return jax.jit(called, keep_unused=True).trace(*args, **kwargs), True, ()
    _check_permutations(traced, dict(axes))
    return traced, False, outside


def _check_permutations(traced: Any, sizes: Mapping[str, int]) -> None:
    """Raise UsageError for a ppermute of positions that its axes do not have."""
    for equation in equations(traced.jaxpr.jaxpr):
        if equation.primitive.name == "ppermute":
            named = equation.params["axis_name"]
            names = named if isinstance(named, tuple) else (named,)
            size = math.prod(sizes.get(name, 1) for name in names)
            outside = [pair for pair in equation.params["perm"] if not all(0 <= end < size for end in pair)]
            if outside:
                axes = ", ".join(map(str, names))
                traceback = equation.source_info.traceback
                frames = [(frame.file_name, frame.line_num) for frame in traceback.frames] if traceback else []
                raise UsageError(
                    f"{user_line(frames)}ppermute has the pair {outside[0]}, "
                    f"and the axis {axes} has positions 0 to {size - 1}"
                )


class UnboundAxisError(UsageError):
    """A collective names an axis that does not exist."""


def _of_a_mesh(axes: Axes, function: UserFunction) -> str:
    """Return a hint on axes of a mesh if `function` may have one: without given axes, or if it is jax.jit's."""
    may_be_global = is_jitted(function) or [name for name, _ in axes] == ["processes"]
    hint = ". In the global view the axes of a mesh are named inside of jax.shard_map alone: put the collective there"
    return hint if may_be_global else ""


@contextlib.contextmanager
def axes_in_messages(axes: Axes, function: UserFunction) -> Iterator[None]:
    """Replace JAX's error for an unbound axis in `function` by one that lists the axes."""
    try:
        yield
    except NameError as error:
        unbound = _UNBOUND.search(str(error))
        if unbound is None:
            raise
        there = ", ".join(f"{name} ({size})" for name, size in axes)
        raise UnboundAxisError(
            f"{raising_line(error.__traceback__)}a collective names the axis {unbound[1]}; "
            f"the axes here are {there}{_of_a_mesh(axes, function)}"
        ) from error
    except AssertionError as error:
        frame, line = list(walk_tb(error.__traceback__))[-1]
        if error.args or "assert" in linecache.getline(frame.f_code.co_filename, line):
            raise
        # JAX checks the axes in jax.shard_map by an assertion, and removes its own frames from the traceback.
        raise UnboundAxisError(
            f"{raising_line(error.__traceback__)}JAX refuses this by an assertion: "
            "a collective in jax.shard_map names an axis that its mesh does not have"
        ) from error


def _is_global(traced: Any) -> bool:
    """Return whether a program refers to a mesh: it maps over one, constrains a sharding, or jits with shardings."""
    if _has_shardings(traced._params):
        return True
    mapped = ("shard_map", "sharding_constraint", "reshard")
    return any(
        equation.primitive.name in mapped or _has_shardings(equation.params)
        for equation in equations(traced.jaxpr.jaxpr)
    )


def _has_shardings(params: Mapping[str, Tree]) -> bool:
    shardings = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
    return any(isinstance(sharding, jax.sharding.Sharding) for sharding in shardings)
