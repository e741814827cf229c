"""Running a program whole and in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import partitioner
import spmd
from spmd.support.arrays import Array


def run_whole(text: str, arguments: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a program without shardings, as one process."""
    return spmd.compile(spmd.parse(text), spmd.ProcessGrid(1, 1))(*arguments)


def run_parts(text: str, arguments: Sequence[Array], devices: int, **options: Any) -> list[Array]:
    """The global results of a program with shardings, on in-process ranks."""
    return run_module(spmd.parse(text), arguments, devices, **options)


def run_module(
    module: spmd.Module, arguments: Sequence[Array], devices: int, *, mode: str = "threads", **options: Any
) -> list[Array]:
    """As `run_parts`, of a program that is parsed; in a `mode` of `spmd.run_parallel`."""
    grid = spmd.ProcessGrid(1, devices)
    parts = partitioner.partition(module, grid, **options)
    inputs = [
        [partitioner.shard_array(a, layout, rank) for a, layout in zip(arguments, parts.in_shardings, strict=True)]
        for rank in range(devices)
    ]
    results_of_processes = spmd.run_parallel(parts.module, grid, inputs, mode=mode, timeout=30)
    return [
        partitioner.join_blocks([results[index] for results in results_of_processes], layout)
        for index, layout in enumerate(parts.out_shardings)
    ]


def collective_kinds(text: str, devices: int, **options: Any) -> list[str]:
    """The kinds of the collectives of a program's per-process program, in order."""
    from partitioner.report import collectives

    parts = partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, devices), **options)
    return [row.kind for row in collectives(parts.module)]
