"""The collectives, read from the specification element by element of its definitions, in plain NumPy.

Every function takes the operands of all processes by rank and the process groups, and returns the results by rank.
Written apart from the product's own reading, against which it is held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from collectives.arrays import Array

ByRank = dict[int, Array]
Groups = list[list[int]]


def cross_replica(groups: Groups, replicas: int, partitions: int) -> Groups:
    return [[r * partitions + p for r in group] for group in groups for p in range(partitions)]


def cross_partition(groups: Groups, replicas: int, partitions: int) -> Groups:
    return [[r * partitions + p for p in group] for group in groups for r in range(replicas)]


def cross_replica_and_partition(groups: Groups, replicas: int, partitions: int) -> Groups:
    return [[r * partitions + p for p in range(partitions) for r in group] for group in groups]


def all_gather(operands: ByRank, groups: Groups, dim: int) -> ByRank:
    return {r: np.concatenate([operands[s] for s in group], axis=dim) for group in groups for r in group}


def reduced(operands: list[Array], name: str) -> Array:
    """Exact for the values the tests draw: wide, then rounded once to the element type."""
    dtype = operands[0].dtype
    with np.errstate(all="ignore"):
        if dtype == np.bool_:
            stack = np.stack(operands)
            if name == "xor":
                return np.logical_xor.reduce(stack)
            return stack.any(0) if name in ("add", "or", "maximum") else stack.all(0)
        if dtype.kind == "c":
            ufunc = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}[name]
            return ufunc.reduce(np.stack(operands))
        if dtype.kind in "iu" or "int" in dtype.name:
            total = operands[0].astype(np.int64)
            for x in operands[1:]:
                total = np.asarray(_INTEGER[name](total, x.astype(np.int64)))
            width = int("".join(c for c in dtype.name if c.isdigit()))
            if width < 64:
                lowest = 0 if dtype.name.startswith("u") else -(1 << (width - 1))
                total = (total - lowest) % (1 << width) + lowest
            return total.astype(dtype)
        stack64 = np.stack([x.astype(np.float64) for x in operands])
        if name in ("maximum", "minimum"):
            pick = stack64.max(0) if name == "maximum" else stack64.min(0)  # NumPy's propagate NaN
            return np.asarray(pick).astype(dtype)
        return np.asarray(stack64.sum(0) if name == "add" else stack64.prod(0)).astype(dtype)


_INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def all_reduce(operands: ByRank, groups: Groups, name: str) -> ByRank:
    return {r: reduced([operands[s] for s in group], name) for group in groups for r in group}


def reduce_scatter(operands: ByRank, groups: Groups, name: str, dim: int) -> ByRank:
    results = {}
    for group in groups:
        parts = np.split(reduced([operands[s] for s in group], name), len(group), axis=dim)
        results.update({r: parts[group.index(r)] for r in group})
    return results


def all_to_all(operands: ByRank, groups: Groups, split_dim: int, concat_dim: int) -> ByRank:
    results = {}
    for group in groups:
        parts = {s: np.split(operands[s], len(group), axis=split_dim) for s in group}
        for r in group:
            results[r] = np.concatenate([parts[s][group.index(r)] for s in group], axis=concat_dim)
    return results


def collective_permute(operands: ByRank, pairs: list[tuple[int, int]]) -> ByRank:
    results = {r: np.zeros_like(x) for r, x in operands.items()}
    for source, target in pairs:
        results[target] = operands[source]
    return results


def collective_broadcast(operands: ByRank, groups: Groups, root: int) -> ByRank:
    return {r: operands[group[root]] for group in groups for r in group}


def collective_reduce(operands: ByRank, groups: Groups, name: str, root: int) -> ByRank:
    results = {}
    for group in groups:
        for r in group:
            total = reduced([operands[s] for s in group], name)
            results[r] = total if r == group[root] else np.zeros_like(operands[r])
    return results
