"""Searches for layouts in `spmd.jax.jit`: a mesh, and the given part of the arguments' layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import jax
from jax.sharding import PartitionSpec

from spmd.errors import UsageError
from spmd.jax.auto import is_auto
from spmd.jax.process_view import Axes
from spmd.jax.tracing import Lowered
from spmd.sharding_search.autoshard import autoshard, checked_memory, checked_mesh
from spmd.sharding_search.layouts import Spec, mesh_op_of, with_given
from spmd.sharding_search.plan import ShardingPlan
from spmd.support.arrays import Tree


@dataclass(frozen=True)
class Searched:
    """A search for a layout over `mesh` of the arguments that `in_shardings` leaves open.

    `in_shardings` is a tree like the positional arguments, or a prefix of one: AUTO or "auto", a
    jax.sharding.PartitionSpec, or None for a leaf that is whole on every process. `memory` is as for spmd.autoshard.
    """

    mesh: Axes
    in_shardings: Tree
    memory: float | None = None

    @property
    def processes(self) -> int:
        return prod(size for _, size in self.mesh)

    def lay_out(self, lowered: Lowered, tree: Tree) -> tuple[Lowered, ShardingPlan]:
        """Return the program with the layout found for arguments (args, kwargs) of `tree`, and the plan."""
        given = self._given(tree)
        places = {leaf: lowered.tokens + place for place, leaf in enumerate(lowered.kept)}
        types = lowered.module.function("main").type.inputs
        specs = {
            places[leaf]: _spec(spec, types[places[leaf]].rank, dict(self.mesh))  # type: ignore[attr-defined]
            for leaf, spec in given.items()
            if leaf in places
        }
        mesh = dict(self.mesh)
        module = with_given(lowered.module, mesh_op_of(lowered.module, mesh), specs, "main")
        laid_out, plan = autoshard(module, mesh=mesh, memory=self.memory)
        return replace(lowered, module=laid_out), plan

    def _given(self, tree: Tree) -> dict[int, tuple[object, ...]]:
        """Return the specs of the leaves that are not searched for."""
        args, _ = jax.tree.unflatten(tree, range(tree.num_leaves))
        if is_auto(self.in_shardings):
            return {}
        try:
            chosen = jax.tree.broadcast(self.in_shardings, args, is_leaf=lambda part: part is None or is_auto(part))
        except ValueError as error:
            text = f"in_shardings must be a tree like the positional arguments, or a prefix of one: {error}"
            raise UsageError(text) from None
        flat = jax.tree.leaves(chosen, is_leaf=lambda part: part is None)
        given: dict[int, tuple[object, ...]] = {}
        for leaf, spec in zip(jax.tree.leaves(args), flat, strict=True):
            if is_auto(spec):
                continue
            if not (spec is None or isinstance(spec, PartitionSpec)):
                raise UsageError(
                    f'in_shardings must have "auto", AUTO, a PartitionSpec or None for each leaf, got {spec!r}'
                )
            given[leaf] = () if spec is None else tuple(spec)
        return given


def _spec(spec: Tree, rank: int, mesh: Mapping[str, int]) -> Spec:
    entries = [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in spec]
    names = [name for entry in entries for name in entry]
    unknown = [name for name in names if name not in mesh]
    if len(entries) > rank or unknown or len(set(names)) < len(names):
        there = ", ".join(f"{name}={size}" for name, size in mesh.items())
        raise UsageError(f"{spec} is not a layout of an array of {rank} dimensions over {there}")
    return tuple(entries) + ((),) * (rank - len(entries))


def searched(mesh: object, in_shardings: Tree, memory: object) -> Searched | None:
    """Return the search that the options of `jit` request; None if they request none."""
    if mesh is None:
        return None
    axes = tuple(checked_mesh(mesh).items())
    return Searched(axes, "auto" if in_shardings is None else in_shardings, checked_memory(memory))
