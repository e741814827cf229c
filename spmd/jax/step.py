"""A JAX function that runs on the ranks of a job."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from spmd.errors import ExecutionError, UsageError
from spmd.ir import Module
from spmd.jax.compiled import Compiled
from spmd.jax.leaves import AbstractLeaf, form_of, names_of
from spmd.jax.process_view import Axes
from spmd.jax.statics import Statics
from spmd.jax.tracing import lower, name_of
from spmd.runtime.executable import Executable
from spmd.runtime.world import ranks, under_mpi
from spmd.usage import kind_of

if TYPE_CHECKING:
    from spmd.predict.prediction import Prediction

_flatten = jax.tree_util.tree_flatten


class JittedFunction:
    """What `spmd.jax.jit` makes of a function: call it with this process's trees.

    It is compiled once for each tree of arguments, their shapes and dtypes, and each value of static arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        axes: Axes | None,
        statics: Statics,
        as_jax: bool,
        options: Mapping[str, Any],
        donated: Sequence[int] = (),
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._axes = axes
        self._statics = statics
        self._has_statics = bool(statics)
        self._as_jax = as_jax
        self._options = dict(options)
        self._donated = donated
        self._steps: dict[Any, Compiled] = {}
        self._last: Compiled | None = None
        self._last_types: list[type] = []  # of the leaves of the last call
        self._last_others: list[int] = []  # those that were no NumPy arrays

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function on this process's arguments. All processes call it, as they would a collective."""
        static: tuple[Any, ...] = ()
        if self._has_statics:
            args, kwargs, static = self._statics.split(args, kwargs)
        last = self._last
        if last is not None and static == last.static:
            try:
                leaves = last.tree.flatten_up_to((args, kwargs))
            except ValueError:  # another tree
                return self._anew(args, kwargs, static)
            if list(map(type, leaves)) == self._last_types:
                arrays = last.with_arrays(leaves, self._last_others) if self._last_others else leaves
                try:
                    if arrays is not None:
                        return last.run(arrays)
                except ExecutionError:
                    # The executable knows arrays that it was not compiled for, before anything runs.
                    if last.is_for(leaves):
                        raise
        return self._anew(args, kwargs, static)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A method, where the decorated function stands in a class."""
        return self if instance is None else types.MethodType(self, instance)

    def _anew(self, args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[Any, ...]) -> Any:
        """A call whose arguments have to be looked at: they are not just like those of the last one."""
        leaves, tree = _flatten((args, kwargs))
        compiled, forms, names = self._compiled(leaves, tree, static)
        self._check_ranks(compiled)
        arrays = compiled.arrays(leaves, forms, names)
        self._last = compiled
        self._last_types = list(map(type, leaves))
        self._last_others = [index for index, kind in enumerate(self._last_types) if kind is not np.ndarray]
        return compiled.run(arrays)

    def lower(self, *args: Any, **kwargs: Any) -> Module:
        """The program, for arguments of these forms (arrays, or jax.ShapeDtypeStruct)."""
        return self._for(args, kwargs).module

    def executable(self, *args: Any, **kwargs: Any) -> Executable:
        """The compiled program, for arguments of these forms. It takes and gives the leaves of the trees."""
        return self._for(args, kwargs).executable

    def cost(self, *args: Any, **kwargs: Any) -> Prediction:
        """What a step is expected to take, for arguments of these forms: time, memory and traffic; nothing runs.

        On the machine whose file $SPMD_MACHINE names (see `spmd calibrate`), or a nominal one, and the network of
        $SPMD_TOPOLOGY.
        """
        return self._for(args, kwargs).cost()

    def shard(self, tree: Any) -> Any:
        """This process's blocks of whole arrays: of arguments or results, all or some.

        The program must have been compiled for such arrays: by a call, or by `executable`.
        """
        return self._of_shapes("shard", tree)

    def unshard(self, tree: Any) -> Any:
        """The whole arrays of blocks, on every process: a collective call. Takes results or arguments, all or some.

        Results come first where a tree could be either; `shard` thinks of arguments first.
        """
        return self._of_shapes("unshard", tree)

    def shardings(self, tree: Any) -> Any:
        """How the leaves of such a tree are cut, as `spmd.checkpoint` takes it: a tree of Layouts."""
        return self._of_shapes("shardings", tree)

    def __repr__(self) -> str:
        axes = "" if self._axes is None else " over " + ", ".join(f"{name}={size}" for name, size in self._axes)
        return f"<spmd.jax.jit of {name_of(self._function)}{axes}>"

    # --- compiling ---

    @property
    def function(self) -> Callable[..., Any]:
        """What it was made of."""
        return self._function

    @property
    def statics(self) -> Statics:
        """Which arguments are static."""
        return self._statics

    @property
    def axes(self) -> Axes:
        """The named axes, major first; by default one, of all ranks."""
        return (("processes", number_of_ranks()),) if self._axes is None else self._axes

    def _for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
        static: tuple[Any, ...] = ()
        if self._has_statics:
            args, kwargs, static = self._statics.split(args, kwargs)
        leaves, tree = _flatten((args, kwargs))
        return self._compiled(leaves, tree, static)[0]

    def _compiled(
        self, leaves: Sequence[Any], tree: Any, static: tuple[Any, ...]
    ) -> tuple[Compiled, tuple[AbstractLeaf, ...], Sequence[str]]:
        names = _Names(tree, self._statics)
        forms = tuple([form_of(leaf, names, index) for index, leaf in enumerate(leaves)])
        key = (tree, forms, static)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._of_blocks(forms, tree, static, names) or self._compile(forms, tree, static)
        return step, forms, names

    def _of_blocks(
        self, forms: tuple[AbstractLeaf, ...], tree: Any, static: tuple[Any, ...], names: Sequence[str]
    ) -> Compiled | None:
        """What was compiled for whole arrays of which some of these are blocks."""
        for compiled in reversed(list(self._steps.values())):
            if (
                compiled.is_global
                and compiled.tree == tree
                and compiled.static == static
                and compiled.fits(forms, names)
            ):
                return compiled
        return None

    def _compile(self, forms: tuple[AbstractLeaf, ...], tree: Any, static: tuple[Any, ...]) -> Compiled:
        insert = functools.partial(self._statics.insert, static)
        lowered = lower(self._function, self.axes, insert, tree, forms)
        donated = self._statics.leaves_of(self._donated, tree)
        return Compiled(lowered, tree, static, forms, self._as_jax, {**self._options, **lowered.donate(donated)})

    def _check_ranks(self, compiled: Compiled) -> None:
        there = number_of_ranks()
        if compiled.processes == there:
            return
        wanted = "its mesh has" if compiled.is_global else ", ".join(f"{n}={s}" for n, s in self.axes) + " make"
        or_here = "" if compiled.is_global else ", or run all of them here with spmd.jax.simulate"
        raise UsageError(
            f"{name_of(self._function)}: {wanted} {compiled.processes} processes, and there are {there} ranks; "
            f"start it with `spmd launch -n {compiled.processes}`{or_here}"
        )

    def _of_shapes(self, what: str, tree: Any) -> Any:
        for compiled in reversed(list(dict.fromkeys(self._steps.values()))):
            layouts = compiled.layouts_of(tree, of_arguments=what == "shard")
            if layouts is not None:
                structure: Any
                leaves, structure = _flatten(tree)
                return structure.unflatten(getattr(compiled, what)(leaves, layouts))
        if not self._steps:
            raise UsageError(f"{what} needs a compiled program: call the step before, or its `executable(*arguments)`")
        raise UsageError(
            f"{what} takes arguments or results of the step, all or some, whole or as blocks; "
            f"this tree is none: {jax.tree.structure(tree)}"
        )


class _Names(Sequence[str]):
    """Names of the leaves of (args, kwargs), made when somebody is told one."""

    def __init__(self, tree: Any, statics: Statics) -> None:
        self._tree = tree
        self._statics = statics

    @functools.cached_property
    def _names(self) -> list[str]:
        return names_of(self._tree.unflatten([0] * len(self)), self._statics.names_of_rest())

    def __getitem__(self, index: Any) -> Any:
        return self._names[index]

    def __len__(self) -> int:
        return int(self._tree.num_leaves)


def number_of_ranks() -> int:
    return ranks().size if under_mpi() else 1


def function_and_statics(
    function: Callable[..., Any], numbers: int | Sequence[int], names: str | Sequence[str], taker: str
) -> tuple[Callable[..., Any], Statics]:
    """What a caller of `taker` gave as a function, and its static arguments; those of a JittedFunction."""
    if isinstance(function, JittedFunction):
        return function.function, function.statics
    if not callable(function):
        raise UsageError(f"{taker} takes a function, got {kind_of(function)}")
    return function, Statics(function, numbers, names)
