"""Assigns sub-axes to the factors of an op: candidates, by the available layouts, from which the cheapest is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from partitioner.mesh import Axes, DeviceMesh
from partitioner.rules.core import PASS, REDUCE, Mapping, Rule
from partitioner.sharding import Sharding

#: The sub-axes that shard each factor.
Assignment = tuple[Axes, ...]


@dataclass(frozen=True)
class Known:
    """The layouts of one tensor of an op: those available for an operand, or the target of a result."""

    layouts: tuple[Sharding, ...]
    size: int


def sharding_of(mesh: DeviceMesh, mapping: Mapping, assignment: Assignment) -> Sharding:
    """Return the sharding of one tensor under an assignment."""
    return Sharding(mesh, tuple(_join(assignment, factors) for factors in mapping))


def _join(assignment: Assignment, factors: tuple[int, ...]) -> Axes:
    return assignment[factors[0]] if len(factors) == 1 else tuple(a for f in factors for a in assignment[f])


def project(mesh: DeviceMesh, rule: Rule, mapping: Mapping, dimensions: Sequence[Axes]) -> dict[int, Axes]:
    """Return the sub-axes of each factor of one tensor, as far as sub-axes and factors align."""
    projected: dict[int, Axes] = {}
    for factors, axes in zip(mapping, dimensions, strict=True):
        if len(factors) == 1:
            projected[factors[0]] = axes
            continue
        at = 0
        for index, factor in enumerate(factors):
            taken: list[int] = []
            product, is_minor = 1, index == len(factors) - 1
            while at < len(axes) and (is_minor or product < rule.sizes[factor]):
                size = mesh.sizes[axes[at]]
                if rule.sizes[factor] % (product * size):
                    break
                taken.append(axes[at])
                product *= size
                at += 1
            projected[factor] = tuple(taken)
            if product != rule.sizes[factor]:
                break
    return projected


def repair(mesh: DeviceMesh, rule: Rule, assignment: list[Axes]) -> Assignment:
    """Remove sub-axes from factors until every dimension with several factors has contiguous blocks."""
    for mapping in rule.tensors:
        for factors in mapping:
            if len(factors) < 2:
                continue
            is_full = True
            for factor in factors:
                axes = assignment[factor] if is_full else ()
                while axes and rule.sizes[factor] % mesh.count(axes):
                    axes = axes[:-1]
                if axes != assignment[factor]:
                    assignment[factor] = axes
                    return repair(mesh, rule, assignment)
                is_full = mesh.count(axes) == rule.sizes[factor]
    return tuple(assignment)


def candidates(
    mesh: DeviceMesh, rule: Rule, tensors: Sequence[Known | None], allowed: Callable[[int], bool]
) -> Iterable[Assignment]:
    """Yield candidate assignments: each visits the tensors in another order, the first to shard a factor deciding."""
    usable = [allowed(factor) and rule.sizes[factor] > 1 for factor in range(len(rule.sizes))]
    projected: list[tuple[int, int, dict[int, Axes]]] = []
    count = len(rule.operands)
    for index, known in enumerate(tensors):
        if known is not None:
            for layout in known.layouts:
                projection = project(mesh, rule, rule.tensors[index], layout.dimensions)
                projected.append((index, known.size, projection))
    results = [entry for entry in projected if entry[0] >= count]
    operands = sorted((entry for entry in projected if entry[0] < count), key=lambda entry: (-entry[1], entry[0]))
    orders = [results + operands, operands + results]
    orders += [[entry, *results, *(other for other in operands if other is not entry)] for entry in operands[1:4]]
    orders += [[entry] for entry in (*results[:2], *operands[:3])]
    seen: set[Assignment] = set()
    for order in orders:
        assignment = repair(mesh, rule, _merge(rule, [projection for _, _, projection in order], usable))
        if assignment not in seen:
            seen.add(assignment)
            yield assignment
    for assignment in _relocated(mesh, rule, projected, usable):
        if assignment not in seen:
            seen.add(assignment)
            yield assignment
    nothing: Assignment = ((),) * len(rule.sizes)
    if nothing not in seen:
        yield nothing


def _merge(rule: Rule, order: Iterable[dict[int, Axes]], usable: Sequence[bool]) -> list[Axes]:
    assignment: list[Axes] = [()] * len(rule.sizes)
    used: set[int] = set()
    for projection in order:
        for factor, axes in projection.items():
            if not usable[factor] or len(axes) <= len(assignment[factor]):
                continue
            present = assignment[factor]
            if axes[: len(present)] != present:
                continue
            new = []
            for axis in axes[len(present) :]:
                if axis in used:
                    break
                new.append(axis)
            used.update(new)
            assignment[factor] = present + tuple(new)
    return assignment


def _relocated(
    mesh: DeviceMesh, rule: Rule, projected: list[tuple[int, int, dict[int, Axes]]], usable: Sequence[bool]
) -> Iterable[Assignment]:
    """Yield assignments that move sub-axes of replicated factors to one that passes (from a sorted to a batch one)."""
    for _, _, projection in sorted(projected, key=lambda entry: -entry[1])[:2]:
        base = _merge(rule, [projection], usable)
        lost = [axes for factor, axes in projection.items() if axes and not usable[factor]]
        if not lost:
            continue
        moved = tuple(axis for axes in lost for axis in axes)
        for factor in projection:
            if usable[factor] and rule.kinds[factor] == PASS:
                grown = list(base)
                grown[factor] = base[factor] + moved
                if rule.sizes[factor] % mesh.count(grown[factor]) == 0:
                    yield repair(mesh, rule, grown)


def reduced(rule: Rule, assignment: Assignment) -> Axes:
    """Return the sub-axes over which results are partial sums."""
    return tuple(sorted(axis for factor in rule.of_kind(REDUCE) for axis in assignment[factor]))
