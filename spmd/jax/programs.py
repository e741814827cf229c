"""The programs of a function: one per structure and forms of arguments, static values, axes and settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import jax

from spmd.errors import UsageError
from spmd.jax import settings
from spmd.jax.compiled import Compiled
from spmd.jax.leaves import AbstractLeaf, names_of
from spmd.jax.process_view import Axes
from spmd.jax.statics import Statics
from spmd.support.arrays import Tree

Forms = tuple[AbstractLeaf, ...]
_Kind = TypeVar("_Kind", bound=Compiled)


class Programs(Generic[_Kind]):
    """The compiled programs of a function; `compile(forms, tree, static)` makes another."""

    def __init__(self, compile: Callable[[Forms, Tree, tuple[Tree, ...]], _Kind]) -> None:
        self._compile = compile
        self._programs: dict[Tree, _Kind] = {}

    def of(self, forms: Forms, tree: Tree, static: tuple[Tree, ...], axes: Axes, names: Sequence[str]) -> _Kind:
        """Return the program for arguments of these forms: whole arrays or, in the global view, blocks
        of earlier ones.
        """
        key = (tree, forms, static, axes, settings.current())
        program = self._programs.get(key)
        if program is None:
            known = self._of_blocks(forms, tree, static, names)
            program = self._programs[key] = known or self._compiled(forms, tree, static, names)
        return program

    def _compiled(self, forms: Forms, tree: Tree, static: tuple[Tree, ...], names: Sequence[str]) -> _Kind:
        """Return a new program; if JAX rejects the arguments, the error describes what has changed."""
        try:
            return self._compile(forms, tree, static)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            if type(error).__name__ == "IndivisibleError":
                error.add_note(
                    "at its first call a function of the global view takes whole arrays; blocks are given as "
                    "spmd.jax.make_array_from_process_local_data(sharding, block)"
                )
            last = next(reversed(self._programs.values()), None)
            if last is None or isinstance(error, UsageError):
                raise
            if last.tree != tree:
                error.add_note(f"the arguments are {tree}, and were {last.tree} in the call before")
            elif last.is_global and (misfit := last.cuts.misfit(forms, names)) is not None:
                raise UsageError(misfit) from error
            raise

    def _of_blocks(self, forms: Forms, tree: Tree, static: tuple[Tree, ...], names: Sequence[str]) -> _Kind | None:
        """Return the program compiled for whole arrays of which some of these arguments are blocks."""
        for program in reversed(self._programs.values()):
            is_same = program.is_global and program.tree == tree and program.static == static
            if is_same and program.settings == settings.current() and program.cuts.fits(forms, names):
                return program
        return None

    def apply(self, what: str, tree: Tree) -> Tree:
        """Return `tree` with its leaves converted by the method `what` of the program that it belongs to."""
        for program in reversed(list(dict.fromkeys(self._programs.values()))):
            side = program.cuts.of(tree, arguments_first=what == "shard")
            if side is not None:
                structure: Tree
                leaves, structure = jax.tree.flatten(tree)
                return structure.unflatten(getattr(program, what)(leaves, side))
        if not self._programs:
            raise UsageError(f"{what} needs a compiled program: call the step before, or its `executable(*arguments)`")
        raise UsageError(
            f"{what} takes arguments or results of the step, all or some, whole or as blocks; "
            f"this tree is none: {jax.tree.structure(tree)}"
        )


class Names(Sequence[str]):
    """Names of the leaves of (args, kwargs), computed when an error needs one."""

    def __init__(self, tree: Tree, statics: Statics) -> None:
        self._tree = tree
        self._statics = statics

    @functools.cached_property
    def _names(self) -> list[str]:
        return names_of(self._tree.unflatten([0] * len(self)), self._statics.names_of_rest())

    def __getitem__(self, index: Tree) -> Tree:
        return self._names[index]

    def __len__(self) -> int:
        return int(self._tree.num_leaves)
