"""Kernels of ops on bounded dimensions, specialized for the sizes at run time.

Elements beyond the run-time size are padding: a static operand is sliced to the bounded one that it is paired with, and
a result whose type has more elements is padded with zeros. The per-op relations between dimensions are in
spmd/dialects/bounded.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from spmd.backends.kernels import Context, Kernel, make_kernel
from spmd.dialects.bounded import Axis, at_bounds, axes
from spmd.dialects.core import InferenceError
from spmd.dialects.faults import run_time_faults
from spmd.dialects.shapes import common_groups, dilated
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import AttributeValue, NumberedValue, Op
from spmd.support.arrays import Array, Results
from spmd.types import TensorType, Type

Shape = tuple[int, ...]
#: Ops whose result may be larger than the data, and is then padded.
_PADDED = (
    *("stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.gather", "stablehlo.reshape", "chlo.top_k"),
    "stablehlo.broadcast_in_dim",
)


def bounded_kernel(op: Op, context: Context) -> Kernel:
    """Return the kernel of `op`, which has bounded operands; it caches a kernel per combination of shapes."""
    full = at_bounds(op)
    links, count = axes(full), len(op.operands)
    kept: dict[tuple[Shape | None, ...], Callable[..., Any]] = {}

    def call(process: object, *values: Any) -> Any:
        key = tuple(getattr(value, "shape", None) for value in values[:count])
        run = kept.get(key)
        if run is None:
            run = kept[key] = _Specialized(op, full, links, key).kernel(context)
        return run(process, *values)

    return Kernel(call, needs_process=True, aliases=tuple(range(count)))


@dataclass
class _Specialized:
    """`op` specialized for operands of `shapes`; `full` is the op at its bounds, `links` are the axes of that."""

    op: Op
    full: Op
    links: Sequence[Axis]
    shapes: Sequence[Shape | None]

    def kernel(self, context: Context) -> Callable[..., Any]:
        op, count = self.op, len(self.op.operands)
        sizes = self._aligned()
        attributes = self._attributes(sizes)
        operands = [
            value
            if shape is None
            else NumberedValue(TensorType(tuple(shape), value.tensor.element_type), value.owner, value.index)
            for value, shape in zip(op.operands, sizes, strict=True)
        ]
        refined = op.clone(operands, result_types=[], attributes=attributes)
        refined = refined.clone(operands, result_types=self._result_types(refined, sizes))
        self._check(refined)
        kernel = make_kernel(refined, context)
        fitted = [None if shape is None else self._fit(index, tuple(shape)) for index, shape in enumerate(sizes)]
        filled = [self._filled(index, type) for index, type in enumerate(refined.result_types)]

        def run(process: object, *values: Any) -> Results:
            taken = [value if fit is None else fit(value) for value, fit in zip(values, fitted, strict=False)]
            results = kernel.run(process, *taken, *values[count:])
            if all(fill is None for fill in filled):
                return results  # type: ignore[no-any-return]
            many = results if len(filled) > 1 else (results,)
            whole = tuple(each if fill is None else fill(each) for each, fill in zip(many, filled, strict=True))
            return whole if len(filled) > 1 else whole[0]

        return run

    def _fit(self, index: int, shape: Shape) -> Callable[[Any], Array]:
        """Return a function that fits operand `index` to `shape`, by slicing, zero padding, or broadcasting size 1."""
        before, declared = self.shapes[index], self.op.operands[index].tensor.shape
        assert before is not None
        if any(axis.spreads for axis in self.links) and any(
            known is None and old == 1 < new for known, old, new in zip(declared, before, shape, strict=True)
        ):
            return lambda value: np.broadcast_to(value, shape)
        return _fitter(shape)

    def _aligned(self) -> list[list[int] | None]:
        """Return the sizes of the operands; ExecutionError if linked bounded dimensions differ."""
        op = self.op
        sizes = [None if shape is None else list(shape) for shape in self.shapes]
        for axis in self.links:
            members = [(sizes[index], index, dimension) for index, dimension in axis.operands]
            found = {
                shape[dimension]
                for shape, index, dimension in members
                if shape is not None and op.operands[index].tensor.shape[dimension] is None
            }
            if not found:
                continue
            if axis.spreads and len(found) > 1:
                found.discard(1)
            if len(found) > 1:
                text = f"bounded dimensions must have equal sizes, got {', '.join(map(str, sorted(found)))}"
                raise ExecutionError(Diagnostic(op.location, text, op.name))
            (size,) = found
            for shape, _, dimension in members:
                if shape is not None:
                    shape[dimension] = size
        return sizes

    def _attributes(self, sizes: Sequence[list[int] | None]) -> dict[str, AttributeValue]:
        """Return the attributes for these sizes; sizes that need padding are enlarged in place."""
        attributes = dict(self.op.attributes)
        adapt = _ADAPTED.get(self.op.name)
        if adapt is not None:
            adapt(self, attributes, [[] if shape is None else shape for shape in sizes])
        return attributes

    def bounded(self, dimension: int) -> bool:
        """Return whether a dimension of the first operand is bounded."""
        return self.op.operands[0].tensor.shape[dimension] is None

    def result_is_bounded(self, dimension: int) -> bool:
        """Return whether the declared size of the result depends on that dimension of the first operand."""
        places = [place for axis in self.links if (0, dimension) in axis.operands for _, place in axis.results]
        return any(self.op.results[0].tensor.shape[place] is None for place in places)

    def _result_types(self, refined: Op, sizes: Sequence[list[int] | None]) -> list[Type]:
        """Return the result types for these sizes."""
        if self.op.name == "stablehlo.reshape":
            return [self._reshaped(sizes[0] or [])]
        inference = refined.definition.inference if refined.definition else None
        if inference is not None:
            try:
                return list(inference(refined))
            except InferenceError as error:
                raise ExecutionError(Diagnostic(refined.location, str(error), refined.name)) from None
        types: list[Type] = []
        for index, type in enumerate(self.full.result_types):
            if isinstance(type, TensorType):
                shape = list(type.static_shape)
                for axis in self.links:
                    for place in (d for i, d in axis.results if i == index):
                        shape[place] = max((sizes[i] or [])[d] for i, d in axis.operands)
                type = TensorType(tuple(shape), type.element_type)
            types.append(type)
        return types

    def _reshaped(self, sizes: list[int]) -> TensorType:
        """Return the result type of a reshape of operand `sizes`; ExecutionError if the elements do not fill
        it evenly.
        """
        op = self.op
        source, target = self.full.operands[0].tensor.static_shape, self.full.result.tensor.static_shape
        shape = list(target)
        for taken, given in common_groups(source, target):
            count = prod(sizes[dimension] for dimension in taken)
            open_places = [place for place in given if op.result.tensor.shape[place] is None]
            if len(open_places) == len(taken) == len(given) == 1:
                shape[given[0]] = count
                continue
            rest = prod(target[place] for place in given if place not in open_places)
            if not open_places:
                continue
            several = [place for place in open_places if target[place] != 1] or open_places[:1]
            if len(several) > 1 or (count % rest if rest else count):
                text = f"{count} elements do not fill a result of type {op.result.type} evenly"
                raise ExecutionError(Diagnostic(op.location, text, op.name))
            for place in open_places:
                shape[place] = 1
            shape[several[0]] = count // rest if rest else 0
        return TensorType(tuple(shape), op.result.tensor.element_type)

    def _check(self, refined: Op) -> None:
        fault = None if refined.definition is None else next(run_time_faults(refined, refined.definition), None)
        if fault is not None:
            raise ExecutionError(Diagnostic(refined.location, fault[1], refined.name, fault[0]))

    def _filled(self, index: int, type: Type) -> Callable[[Array], Array] | None:
        """Return a function that pads a result of `type` to its declared type; None if none is needed. ExecutionError
        if padding is not possible.
        """
        declared = self.op.results[index].type
        if not isinstance(type, TensorType) or not isinstance(declared, TensorType):
            return None
        shape = tuple(
            size if known is None else known for known, size in zip(declared.shape, type.static_shape, strict=True)
        )
        if shape == type.static_shape:
            return None
        if self.op.name not in _PADDED or any(a > b for a, b in zip(type.static_shape, shape, strict=True)):
            text = f"the result must be of type {declared}, got shape {type.static_shape}"
            raise ExecutionError(Diagnostic(self.op.location, text, self.op.name))
        return _fitter(shape)


def _fitter(shape: Shape) -> Callable[[Any], Array]:
    """Return a function that slices an array to `shape`, and pads it with zeros if it is smaller."""

    def fit(value: Any) -> Array:
        array = np.asarray(value)
        if array.shape == shape:
            return array
        cut = array[tuple(slice(0, size) for size in shape)]
        more = [size - there for size, there in zip(shape, cut.shape, strict=True)]
        if not any(more):
            return cut
        return np.pad(cut, [(0, count) for count in more])

    return fit


# --- attributes that hold sizes --------------------------------------------------------------------------------------

_Adapt = Callable[[_Specialized, dict[str, AttributeValue], list[list[int]]], None]


def _slice(it: _Specialized, attributes: dict[str, AttributeValue], sizes: list[list[int]]) -> None:
    for name in ("start_indices", "limit_indices"):
        places = it.op[name]
        attributes[name] = tuple(
            min(place, size) if it.bounded(d) else place
            for d, (place, size) in enumerate(zip(places, sizes[0], strict=True))
        )


def _windows(it: _Specialized, attributes: dict[str, AttributeValue], sizes: list[list[int]]) -> None:
    """Clamp slice sizes to the operand; pad the operand instead if the result's size is static."""
    windows = list(it.op["slice_sizes"])
    for dimension, size in enumerate(sizes[0]):
        if windows[dimension] <= size or not it.bounded(dimension):
            continue
        if it.result_is_bounded(dimension):
            windows[dimension] = size
        else:
            sizes[0][dimension] = windows[dimension]
    attributes["slice_sizes"] = tuple(windows)


def _update(it: _Specialized, attributes: dict[str, AttributeValue], sizes: list[list[int]]) -> None:
    """Slice the update to the size of the operand."""
    sizes[1][:] = map(min, sizes[1], sizes[0])


def _scatter(it: _Specialized, attributes: dict[str, AttributeValue], sizes: list[list[int]]) -> None:
    count = len(sizes) // 2
    numbers = it.op["scatter_dimension_numbers"]
    beside = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    window = [dimension for dimension in range(len(sizes[0])) if dimension not in beside]
    for updates in sizes[count + 1 :]:
        for dimension, place in zip(window, numbers.update_window_dims, strict=True):
            updates[place] = min(updates[place], sizes[0][dimension])


def _pad(it: _Specialized, attributes: dict[str, AttributeValue], sizes: list[list[int]]) -> None:
    """Limit negative padding to the size of the operand."""
    low, high = list(it.op["edge_padding_low"]), list(it.op["edge_padding_high"])
    for dimension, (size, interior) in enumerate(zip(sizes[0], it.op["interior_padding"], strict=True)):
        extent = dilated(size, interior + 1)
        if extent + low[dimension] + high[dimension] < 0:
            low[dimension], high[dimension] = 0, -extent
    attributes["edge_padding_low"], attributes["edge_padding_high"] = tuple(low), tuple(high)


def _reshape(it: _Specialized, attributes: dict[str, AttributeValue], sizes: list[list[int]]) -> None:
    """Pad dimensions that become static to their bounds first."""
    source, target = it.full.operands[0].tensor.static_shape, it.full.result.tensor.static_shape
    for taken, given in common_groups(source, target):
        if all(it.op.result.tensor.shape[place] is not None for place in given):
            for dimension in taken:
                sizes[0][dimension] = source[dimension]


def _top_k(it: _Specialized, attributes: dict[str, AttributeValue], sizes: list[list[int]]) -> None:
    attributes["k"] = min(it.op["k"], sizes[0][-1])


#: By op: adapts attributes that hold sizes to the run-time sizes.
_ADAPTED: dict[str, _Adapt] = {
    "stablehlo.slice": _slice,
    "stablehlo.dynamic_slice": _windows,
    "stablehlo.gather": _windows,
    "stablehlo.dynamic_update_slice": _update,
    "stablehlo.scatter": _scatter,
    "stablehlo.pad": _pad,
    "stablehlo.reshape": _reshape,
    "chlo.top_k": _top_k,
}
