"""A JAX function that runs on the ranks of a job."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax

from spmd.errors import ExecutionError, UsageError
from spmd.ir import Module
from spmd.jax import settings
from spmd.jax.checking import carried, check, result_leaves
from spmd.jax.compiled import Compiled
from spmd.jax.leaves import AbstractLeaf, Taker, form_of, taken
from spmd.jax.op_by_op import as_value, refuse_global_view, refuse_shardings, run_op_by_op
from spmd.jax.process_view import Axes
from spmd.jax.programs import Names, Programs
from spmd.jax.statics import Selected, Statics, as_names, as_numbers
from spmd.jax.structure import OTHER_STRUCTURE
from spmd.jax.tracebacks import api_boundary, hide_frames
from spmd.jax.tracing import described, lower, name_of, refuse_axes
from spmd.jax.wrapped import own_statics
from spmd.runtime import world
from spmd.runtime.executable import Executable
from spmd.support.arrays import Tree, UserFunction
from spmd.support.usage import kind_of

if TYPE_CHECKING:
    from spmd.jax.searched import Searched
    from spmd.predict.prediction import Prediction
    from spmd.sharding_search.plan import ShardingPlan
    from spmd.viewing.view import View

_flatten = jax.tree_util.tree_flatten


@dataclass(frozen=True)
class Declared:
    """What the user declares to be equal on all processes: arguments, and results by number, or all."""

    arguments: Selected = field(default_factory=Selected)
    results: bool | int | Sequence[int] = ()


class JittedFunction:
    """The result of `spmd.jax.jit`: call it with this process's trees.

    It is compiled once per structure, shapes and dtypes of the arguments, values of static arguments, and JAX's
    settings (x64, promotion, precision, ...).
    """

    def __init__(
        self,
        function: UserFunction,
        axes: Axes | None,
        statics: Statics,
        as_jax: bool,
        options: Mapping[str, Tree],
        donated: Selected,
        declared: Declared | None = None,
        searched: Searched | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._axes = axes
        self._statics = statics
        self._has_statics = bool(statics)
        self._as_jax = as_jax
        self._options = dict(options)
        self._donated = donated
        self._declared = declared or Declared()
        self._searched = searched
        self._plan: ShardingPlan | None = None
        self._programs = Programs(self._compile)
        self._last: Compiled | None = None
        self._last_generation = 0  # generation of the ranks at the last call
        self._last_types: list[type] = []  # types of the leaves of the last call
        self._last_takers: list[tuple[int, Taker]] = []  # of leaves that were not NumPy arrays

    def __call__(self, *args: Tree, **kwargs: Tree) -> Tree:
        """Run the function on this process's arguments. Collective: all processes call it."""
        try:
            return self._call(args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    def _call(self, args: tuple[Tree, ...], kwargs: dict[str, Tree]) -> Tree:
        static: tuple[Tree, ...] = ()
        if self._has_statics:
            args, kwargs, static = self._statics.split(args, kwargs)
        last = self._last
        if last is not None and static == last.static and self._is_current(last):
            try:
                leaves = last.flatten((args, kwargs))
            except OTHER_STRUCTURE:
                return self._anew(args, kwargs, static)
            if list(map(type, leaves)) == self._last_types:
                arrays = taken(leaves, self._last_takers) if self._last_takers else leaves
                try:
                    if arrays is not None:
                        return last.run(arrays)
                except ExecutionError:
                    # The executable rejects arrays that it was not compiled for before anything runs.
                    if last.is_for(leaves):
                        raise
        return self._anew(args, kwargs, static)

    def _is_current(self, last: Compiled) -> bool:
        """Return whether ranks and JAX's settings are those that `last` was compiled with."""
        return self._last_generation == world.generation and last.settings == settings.current()

    def __get__(self, instance: object, owner: type | None = None) -> Tree:
        """Bind the function as a method if it is defined in a class."""
        return self if instance is None else types.MethodType(self, instance)

    def _anew(self, args: tuple[Tree, ...], kwargs: dict[str, Tree], static: tuple[Tree, ...]) -> Tree:
        """Make a call whose arguments differ in type or structure from those of the last one."""
        if not self._has_statics and self._statics.has_modules(args, kwargs):
            self._has_statics = True
            return self._call(args, kwargs)
        leaves, tree = _flatten((args, kwargs))
        if settings.is_jit_disabled():
            return self._op_by_op(leaves, tree, static)
        compiled, forms, names = self._compiled(leaves, tree, static)
        self._check_ranks(compiled.processes, is_global=compiled.is_global)
        arrays = compiled.arrays(leaves, forms, names)
        if compiled.updates:
            return compiled.call(leaves, arrays)
        self._last, self._last_generation = compiled, world.generation
        self._last_types = list(map(type, leaves))
        self._last_takers = compiled.takers(leaves)
        return compiled.run(arrays)

    def _op_by_op(self, leaves: Sequence[Tree], tree: Tree, static: tuple[Tree, ...]) -> Tree:
        """Make a call under jax_disable_jit: the function runs in Python, as this process."""
        names = Names(tree, self._statics)
        forms = [form_of(leaf, names, index) for index, leaf in enumerate(leaves)]
        if self._searched is not None or any(form.sharding is not None for form in forms):
            refuse_global_view(name_of(self._function))
        refuse_shardings(self._function)
        self._check_ranks(math.prod(size for _, size in self.axes), is_global=False)

        # Python may reach other ops on other ranks: each is compared where it communicates.
        options = {**self._options, "mpmd": True, "check_collectives": True}

        def compile(function: UserFunction) -> UserFunction:
            return JittedFunction(function, self.axes, Statics(function), True, options, Selected())

        function = self._statics.of_leaves(self._function, static, tree)
        values = list(map(as_value, leaves, forms))
        return run_op_by_op(function, self.axes, compile, values, as_jax=self._as_jax)

    @api_boundary
    def lower(self, *args: Tree, **kwargs: Tree) -> Module:
        """Return the program for arguments of these forms (arrays, or jax.ShapeDtypeStruct)."""
        return self._for(args, kwargs).module

    @api_boundary
    def executable(self, *args: Tree, **kwargs: Tree) -> Executable:
        """Return the compiled program for arguments of these forms, which takes and returns the leaves of the trees."""
        return self._for(args, kwargs).executable

    @api_boundary
    def cost(self, *args: Tree, **kwargs: Tree) -> Prediction:
        """Return the predicted time, memory and traffic of a step for arguments of these forms; nothing runs.

        The prediction is for the machine in $SPMD_MACHINE (see `spmd calibrate`), or a nominal one, and the network in
        $SPMD_TOPOLOGY.
        """
        return self._for(args, kwargs).cost()

    @api_boundary
    def view(self, *args: Tree, **kwargs: Tree) -> View:
        """Return a page that shows the program for arguments of these forms; `.save(path)` writes it. Nothing runs.

        Times are predicted for the same machine and network as by `cost`.
        """
        return self._for(args, kwargs).view(name_of(self._function))

    @api_boundary
    def shard(self, tree: Tree) -> Tree:
        """Return this process's blocks of whole arrays: of arguments or results, all or some.

        The program must have been compiled for such arrays, by a call or by `executable`; UsageError otherwise.
        """
        return self._programs.apply("shard", tree)

    @api_boundary
    def unshard(self, tree: Tree) -> Tree:
        """Return the whole arrays of blocks, on every process. Collective. Takes results or arguments, all or some.

        A tree that could be either is taken as results; `shard` takes it as arguments.
        """
        return self._programs.apply("unshard", tree)

    @api_boundary
    def shardings(self, tree: Tree) -> Tree:
        """Return the layouts of the leaves of such a tree, as `spmd.checkpoint` takes them."""
        return self._programs.apply("shardings", tree)

    @property
    def plan(self) -> ShardingPlan:
        """The layout found for the program compiled last: see `spmd.autoshard`. UsageError if none was searched for."""
        if self._plan is None:
            raise UsageError(
                "there is a plan once a program was compiled, by a call or by `executable`, of a function that "
                'spmd.jax.jit was given a mesh for and in_shardings="auto"'
            )
        return self._plan

    def __repr__(self) -> str:
        return described("spmd.jax.jit", self._function, self._axes)

    # --- compiling ---

    @property
    def function(self) -> UserFunction:
        """The original function."""
        return self._function

    @property
    def statics(self) -> Statics:
        """The static arguments."""
        return self._statics

    @property
    def axes(self) -> Axes:
        """The named axes, major first; by default one, of all ranks."""
        return (("processes", world.number_of_ranks()),) if self._axes is None else self._axes

    def _for(self, args: tuple[Tree, ...], kwargs: dict[str, Tree]) -> Compiled:
        self._has_statics = self._has_statics or self._statics.has_modules(args, kwargs)
        static: tuple[Tree, ...] = ()
        if self._has_statics:
            args, kwargs, static = self._statics.split(args, kwargs)
        leaves, tree = _flatten((args, kwargs))
        return self._compiled(leaves, tree, static)[0]

    def _compiled(
        self, leaves: Sequence[Tree], tree: Tree, static: tuple[Tree, ...]
    ) -> tuple[Compiled, tuple[AbstractLeaf, ...], Sequence[str]]:
        names = Names(tree, self._statics)
        forms = tuple([form_of(leaf, names, index) for index, leaf in enumerate(leaves)])
        return self._programs.of(forms, tree, static, self.axes, names), forms, names

    def _compile(self, forms: tuple[AbstractLeaf, ...], tree: Tree, static: tuple[Tree, ...]) -> Compiled:
        insert = functools.partial(self._statics.insert, static)
        searched = self._searched
        processes = None if searched is None else searched.processes
        lowered = lower(self._function, self.axes, insert, tree, forms, processes)
        if searched is not None:
            lowered, self._plan = searched.lay_out(lowered, tree)
        refuse_axes(self._function, self._axes, lowered.is_global, "spmd.jax.jit")
        replicated = self._statics.leaves_of(self._declared.arguments, tree)
        donated = self._statics.leaves_of(self._donated, tree)
        results = {*result_leaves(self._declared.results, lowered.out_tree)}
        results |= carried(lowered, forms, {*replicated} & {*donated})
        names = [*Names(tree, self._statics), *["a jax.Ref"] * len(lowered.outside)]
        check(lowered, replicated, results, names)
        return Compiled(lowered, tree, static, forms, self._as_jax, {**self._options, **lowered.donate(donated)})

    def _check_ranks(self, processes: int, *, is_global: bool) -> None:
        there = world.number_of_ranks()
        if processes == there:
            return
        source = "its mesh has" if is_global else ", ".join(f"{n}={s}" for n, s in self.axes) + " make"
        misfit = f"{name_of(self._function)}: {source} {processes} processes, and there are {there} ranks"
        if world.generation:  # ranks are lost and join
            raise UsageError(
                f"{misfit}; make it in the `build` of spmd.elastic.Training, once for each number of ranks"
            )
        if is_global and processes < there:
            raise UsageError(
                f"{misfit}: a mesh of jax.devices() is of this process's own devices; one of all ranks is made as "
                "jax.sharding.AbstractMesh(sizes, names, axis_types)"
            )
        or_here = "" if is_global else ", or run all of them here with spmd.jax.simulate"
        raise UsageError(f"{misfit}; start it with `spmd launch -n {processes}`{or_here}")


def function_and_statics(
    function: UserFunction, numbers: int | Sequence[int], names: str | Sequence[str], taker: str
) -> tuple[UserFunction, Statics]:
    """Return the function that a caller passed to `taker`, and its static arguments, including those of jax.jit."""
    if isinstance(function, JittedFunction):
        return function.function, function.statics
    if not callable(function):
        raise UsageError(f"{taker} takes a function, got {kind_of(function)}")
    own = own_statics(function)
    numbers = (*as_numbers(numbers, "static_argnums"), *own.numbers)
    names = (*as_names(names, "static_argnames"), *own.names)
    return function, Statics(function, numbers, names, own.bound)
