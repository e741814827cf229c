"""Random small programs with random shardings, as text: what the property test draws.

A program is a chain of ops on a few values of small integers, so that results agree however they are summed. Every op
may be followed by a sharding constraint; arguments carry shardings. `whole` is the same program without any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from spmd.types import ELEMENT_TYPES, ElementType, storage_range
from tests.partitioner import drawn_folds as folds
from tests.partitioner import drawn_indexing as indexing
from tests.partitioner import drawn_movement as movement
from tests.partitioner.drawing import SIZES, DrawnProgram, tensor
from tests.partitioner.drawn_axes import MESHES

_MESHES = (*MESHES[:6], (("x", 6),))


@dataclass
class Drawn:
    """The program with shardings, without, its arguments, and the number of devices."""

    sharded: str
    whole: str
    arguments: list[np.ndarray]
    devices: int

    def of(self, element: str) -> Drawn:
        """The same program on another element type than f32.

        What integers do not hold is the end of their range; `not` is the sign of those that have none.
        """
        type = ELEMENT_TYPES[element]

        def retyped(text: str) -> str:
            if element.startswith("ui"):
                text = text.replace("stablehlo.sign", "stablehlo.not")
            return _FLOATS.sub(lambda found: f"dense<{_written(float(found[1]), type)}>", text).replace("f32", element)

        arguments = [array.astype(np.int8).astype(type.dtype) for array in self.arguments]
        return replace(self, sharded=retyped(self.sharded), whole=retyped(self.whole), arguments=arguments)


#: The constants of drawn programs that are no integers.
_FLOATS = re.compile(r"dense<(-?[0-9.]+e[+-][0-9]+)>")


def _written(value: float, type: ElementType) -> str:
    """A number of a program in another type."""
    if type.is_float:
        return f"{value:e}"
    least, most = storage_range(type)
    return str(int(min(max(value, least), most)))


_OPS = (
    movement.elementwise, movement.elementwise, movement.broadcast, folds.reduce, movement.transpose,
    movement.reshape, movement.slice, movement.pad, movement.concatenate, movement.pieces, movement.roll,
    movement.reverse, folds.dot, folds.dot, indexing.dynamic_slice, indexing.dynamic_update_slice, indexing.gather,
    indexing.scatter, indexing.sort, folds.reduce_window, movement.iota, movement.select, movement.loop,
    movement.branch, folds.convolution, folds.batch_dot, folds.arg_reduce, indexing.sort_pair,
    indexing.top_k, indexing.gather_window, folds.pool_gradient,
)  # fmt: skip


def draw(seed: int, *, rich: bool = False) -> Drawn:
    """The program of `seed`; with `rich` its shardings say all that shardings can (`DrawnProgram.sharding`)."""
    random = np.random.default_rng(seed)
    p = DrawnProgram(random, _MESHES[int(random.integers(len(_MESHES)))], rich)
    arrays = []
    header: list[tuple[str, str]] = []
    for index in range(2 + p.below(2)):
        shape = tuple(p.pick(SIZES) for _ in range(1 + p.below(3)))
        arrays.append(random.integers(-3, 4, shape).astype(np.float32))
        name = f"%arg{index}"
        sharding = f" {{sdy.sharding = #sdy.sharding{p.sharding(len(shape))}}}" if p.below(3) else ""
        header.append((f"{name}: {tensor(shape)}{sharding}", f"{name}: {tensor(shape)}"))
        p.values.append((name, shape))
    for _ in range(2 + p.below(5)):
        p.pick(_OPS)(p)
    results = p.values[-2:]
    names = ", ".join(entry[0] for entry in results)
    types = ", ".join(tensor(entry[1]) for entry in results)
    cuts = [
        f"{tensor(shape)}" + (f" {{sdy.sharding = #sdy.sharding{p.sharding(len(shape))}}}" if p.below(2) else "")
        for _, shape in results
    ]
    mesh = ", ".join(f'"{name}"={size}' for name, size in p.mesh)

    def text(side: int) -> str:
        lines = [
            f"func.func @main({', '.join(entry[side] for entry in header)}) -> ({(', '.join(cuts), types)[side]}) {{"
        ]
        lines += [line[side] for line in p.lines]
        return "\n".join([*lines, f"return {names} : {types}", "}"])

    return Drawn(f"sdy.mesh @mesh = <[{mesh}]>\n{text(0)}", text(1), arrays, prod(size for _, size in p.mesh))
