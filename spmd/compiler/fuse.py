"""Chains of elementwise ops on large arrays run block by block, so that what passes between them stays in cache.

A group is a set of pointwise steps of one shape, connected by values or shared inputs. It is run in the place of its
last member: for each block of the arrays every member's kernel runs once, over scratch blocks that are reused. Only
values needed outside of the group are written out whole. A single step is a group when its kernel is more than one
ufunc, for it then has temporary arrays of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np

from spmd.backends.numpy.core import Kernel
from spmd.compiler.iteration import with_buffer
from spmd.compiler.steps import Step, static_shape
from spmd.ir import Op, Value

#: Elements of one block: its handful of scratch arrays fit a core's second-level cache.
BLOCK = 1 << 16
#: Smaller arrays stay in the last-level cache anyway, where blocking them would only add calls; unless the steps are
#: many, as those of a random number generator are.
SMALLEST, SMALLEST_OF_MANY, MANY = 1 << 21, 1 << 19, 40


def fuse(steps: list[Step], results: list[Value]) -> list[Step]:
    """The same program with groups of pointwise steps made into one step each."""
    groups = _Groups(steps, results)
    for step in steps:
        groups.add(step)
    groups.close_all()
    return groups.done


@dataclass(eq=False)
class _Group:
    shape: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)
    touched: set[Value] = field(default_factory=set)


class _Groups:
    """Builds groups while walking over the steps in order."""

    def __init__(self, steps: list[Step], results: list[Value]) -> None:
        self.done: list[Step] = []
        self._open: list[_Group] = []
        self._made_in: dict[Value, _Group] = {}
        self._users: dict[Value, list[Step]] = {}
        for step in steps:
            for value in step.inputs:
                self._users.setdefault(value, []).append(step)
        self._results = set(results)

    def add(self, step: Step) -> None:
        shape = _fusible_shape(step)
        home = self._home(step, shape) if shape is not None else None
        for value in step.inputs:
            maker = self._made_in.get(value)
            if maker is not None and maker is not home:
                self._close(maker)
        if shape is None:
            self.done.append(step)
            return
        if home is None or home not in self._open:
            home = _Group(shape)
            self._open.append(home)
        home.steps.append(step)
        home.touched.update(value for value in (*step.inputs, *step.outputs) if static_shape(value) == shape)
        for value in step.outputs:
            self._made_in[value] = home

    def _home(self, step: Step, shape: tuple[int, ...]) -> _Group | None:
        """The open group that `step` belongs to: those of its shape that make or read its inputs, made one."""
        related = [
            group
            for group in self._open
            if group.shape == shape and any(value in group.touched for value in step.inputs)
        ]
        for group in related[1:]:
            # Nothing that is done yet reads either group's values, so their members may run in any order of makers.
            self._open.remove(group)
            related[0].steps += group.steps
            related[0].touched |= group.touched
            self._made_in.update((value, related[0]) for entry in group.steps for value in entry.outputs)
        return related[0] if related else None

    def close_all(self) -> None:
        for group in list(self._open):
            self._close(group)

    def _close(self, group: _Group) -> None:
        if group not in self._open:
            return
        self._open.remove(group)
        for step in group.steps:
            for value in step.outputs:
                del self._made_in[value]
        if not _is_worth_it(group):
            self.done += group.steps
            return
        members = set(map(id, group.steps))
        needed = [
            step.outputs[0]
            for step in group.steps
            if step.outputs[0] in self._results
            or any(id(user) not in members for user in self._users.get(step.outputs[0], ()))
        ]
        self.done.append(_fused_step(group, needed))


def _is_worth_it(group: _Group) -> bool:
    if prod(group.shape) < SMALLEST:
        return len(group.steps) >= MANY
    return len(group.steps) > 1 or not isinstance(group.steps[0].kernel.call, np.ufunc)


def _fusible_shape(step: Step) -> tuple[int, ...] | None:
    """The shape of a step that can be run in blocks; None for any other."""
    if not step.kernel.pointwise or len(step.outputs) != 1:
        return None
    shape = static_shape(step.outputs[0])
    if shape is None or prod(shape) < SMALLEST_OF_MANY:
        return None
    return shape if all(_spreads(static_shape(value), shape) for value in step.inputs) else None


def _spreads(shape: tuple[int, ...] | None, whole: tuple[int, ...]) -> bool:
    """Whether an operand of `shape` broadcasts to `whole` as NumPy has it."""
    if shape is None or len(shape) > len(whole):
        return False
    return all(size in (1, full) for size, full in zip(reversed(shape), reversed(whole), strict=False))


def _fused_step(group: _Group, needed: list[Value]) -> Step:
    made = {step.outputs[0] for step in group.steps}
    inputs = list(dict.fromkeys(value for step in group.steps for value in step.inputs if value not in made))
    whole = tuple(index for index, value in enumerate(inputs) if static_shape(value) == group.shape)
    block, scratch = _emit_block(group, inputs, needed)
    dtypes = [value.tensor.dtype for value in needed]
    narrow = {
        index: shape
        for index, value in enumerate(inputs)
        if (shape := static_shape(value)) is not None and shape not in ((), group.shape)
    }
    call = _blocked(block, group.shape, whole, narrow, dtypes, scratch)
    call = with_buffer(call, group.shape, list(narrow.values()))
    kernel = Kernel(call, accepts_out=len(needed) == 1, reuses=whole if len(needed) == 1 else ())
    last = group.steps[-1].op
    return Step(last if len(needed) != 1 else _defining(needed[0], last), kernel, inputs, needed)


def _defining(value: Value, default: Op) -> Op:
    return value.defining_op or default


def _emit_block(
    group: _Group, inputs: list[Value], needed: list[Value]
) -> tuple[Callable[..., None], list[np.dtype[Any]]]:
    """One function that runs the members on a block: `block(*inputs, *outputs, *scratch)`; and the scratch dtypes."""
    names = {value: f"i{index}" for index, value in enumerate(inputs)}
    outputs = {value: f"o{index}" for index, value in enumerate(needed)}
    last_use = {value: index for index, step in enumerate(group.steps) for value in step.inputs}
    scratch: list[np.dtype[Any]] = []
    free: list[int] = []
    held: dict[Value, int] = {}
    namespace: dict[str, Any] = {}
    lines: list[str] = []
    for index, step in enumerate(group.steps):
        result = step.outputs[0]
        arguments = [names[value] for value in step.inputs]
        dying = [value for value in dict.fromkeys(step.inputs) if value in held and last_use[value] == index]
        if result in outputs:
            names[result] = outputs[result]
        else:
            names[result] = f"s{_take(step, dying, held, free, scratch)}"
        free += [held.pop(value) for value in dying if value in held]
        namespace[f"k{index}"] = step.kernel.call
        lines.append(f" k{index}({', '.join(arguments)}, out={names[result]})")
    parameters = [*(names[value] for value in inputs), *outputs.values(), *(f"s{k}" for k in range(len(scratch)))]
    source = "\n".join([f"def block({', '.join(parameters)}):", *lines])
    exec(compile(source, "<spmd block>", "exec"), namespace)
    return namespace["block"], scratch


def _take(step: Step, dying: list[Value], held: dict[Value, int], free: list[int], scratch: list[np.dtype[Any]]) -> int:
    """A scratch block for the result of `step`: an operand's own where the kernel allows it, a free one, a new one."""
    result = step.outputs[0]
    dtype = result.tensor.dtype
    for position in step.kernel.reuses:
        value = step.inputs[position]
        if value in dying and value in held and scratch[held[value]] == dtype:
            number = held.pop(value)
            held[result] = number
            return number
    for number in free:
        if scratch[number] == dtype:
            free.remove(number)
            held[result] = number
            return number
    scratch.append(dtype)
    held[result] = len(scratch) - 1
    return len(scratch) - 1


#: An index of whole arrays, the shape of that block, and (input, index) for each narrow input.
_Cut = tuple[tuple[Any, ...], tuple[int, ...], tuple[tuple[int, tuple[Any, ...]], ...]]


def _blocked(
    block: Callable[..., None],
    shape: tuple[int, ...],
    whole: tuple[int, ...],
    narrow: dict[int, tuple[int, ...]],
    dtypes: list[np.dtype[Any]],
    scratch: list[np.dtype[Any]],
) -> Callable[..., Any]:
    """The closure over whole arrays: runs `block` over all blocks of `shape`.

    Inputs at `whole` have that shape, inputs at `narrow` have 1 in some dimensions, the others are scalars.
    """
    size = prod(shape)
    flat_cuts: list[_Cut] = [(cut, extents, ()) for cut, extents in _cuts((size,))]
    cuts: list[_Cut] = [
        (cut, extents, tuple((index, _narrow_cut(cut, sizes, len(shape))) for index, sizes in narrow.items()))
        for cut, extents in _cuts(shape)
    ]
    one = len(dtypes) == 1

    def call(*inputs: Any, out: Any = None) -> Any:
        outputs = [np.empty(shape, dtype) for dtype in dtypes] if out is None else [out]
        operands = list(inputs)
        if not narrow and all(inputs[k].flags.c_contiguous for k in whole) and outputs[0].flags.c_contiguous:
            for k in whole:
                operands[k] = inputs[k].reshape(size)
            targets, taken = [array.reshape(size) for array in outputs], flat_cuts
        else:
            targets, taken = outputs, cuts
        _, largest, _ = taken[0]
        spare = [np.empty(prod(largest), dtype) for dtype in scratch]
        for cut, block_shape, narrow_cuts in taken:
            arguments = operands[:]
            for k in whole:
                arguments[k] = operands[k][cut]
            for k, narrow_cut in narrow_cuts:
                arguments[k] = operands[k][narrow_cut]
            arguments += [target[cut] for target in targets]
            count = prod(block_shape)
            arguments += [buffer[:count].reshape(block_shape) for buffer in spare]
            block(*arguments)
        return outputs[0] if one else tuple(outputs)

    return call


def _cuts(shape: tuple[int, ...]) -> Iterator[tuple[tuple[Any, ...], tuple[int, ...]]]:
    """Indices that cut arrays of `shape` into blocks, each with the shape of its block; the first is the largest."""
    axis = next(k for k in range(len(shape)) if prod(shape[k + 1 :]) <= BLOCK)
    inner = shape[axis + 1 :]
    step = max(1, BLOCK // max(1, prod(inner)))
    for lead in product(*(range(extent) for extent in shape[:axis])):
        for start in range(0, shape[axis], step):
            stop = min(start + step, shape[axis])
            yield (*lead, slice(start, stop)), (stop - start, *inner)


def _narrow_cut(cut: tuple[Any, ...], sizes: tuple[int, ...], rank: int) -> tuple[Any, ...]:
    """The part of an array of `sizes` that broadcasts to block `cut` of `rank` dimensions: all where the size is 1."""
    return tuple(
        index if size != 1 else 0 if isinstance(index, int) else slice(None)
        for index, size in zip(cut[rank - len(sizes) :], sizes, strict=False)
    )
