"""Construction of nests: the computation of a unit at each point of its iteration space.

`PointReader` traces a value through fused ops with an affine index: data movement becomes index arithmetic, elementwise
ops become scalar expressions, and what remains are loads from buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from spmd.analysis.affine import Affine, Split, linear, row_major
from spmd.analysis.constants import constant_array
from spmd.analysis.index_maps import INDEX_MAPS, Index, element_type
from spmd.analysis.scalar.elements import Element, decode, element_constant, encode, memory_types
from spmd.analysis.scalar.elementwise import compute
from spmd.analysis.scalar.expression import I64, Expression, MachineType, parameter
from spmd.compiler.schedule.nest import Leaf, Load, Nest, Position, Stage, Store
from spmd.compiler.schedule.reductions import is_reduction, reduction_of
from spmd.ir import Op, Value
from spmd.ir.attributes import is_splat


def nest_of(
    outputs: Sequence[Op], inlined: Callable[[Op], bool], shape: Sequence[int], reduced: Sequence[int], first: int = 0
) -> Nest:
    """Return the nest over `shape` that stores the results of `outputs`, computing the ops for which `inlined` holds.

    Reductions among the outputs reduce the dimensions `reduced`; other outputs store one element per point. There is
    one loop per dimension (see `collapse`), split where an index would not be affine otherwise. The last dimension
    starts at index `first`.
    """

    def nest_at(extents: list[int], index: Index) -> Nest:
        index = (*index[:-1], index[-1].shifted(first)) if first else index
        reader = PointReader(extents, lambda op: inlined(op) or (op in own and not is_reduction(op)))
        stores = []
        reductions = []
        for op in outputs:
            if is_reduction(op):
                reductions.append(reduction_of(op, index, reader))
                continue
            for value in op.results:
                element = reader.read(value, index)
                stores += stored(value, index, element)
        folded = {variable for dimension in reduced for variable, _ in index[dimension].terms}
        parallel_loops = [variable for variable in range(len(extents)) if variable not in folded]
        last = tuple(sorted(folded))
        stage = Stage(tuple(reader.leaves), (*parallel_loops, *last), last, tuple(stores), tuple(reductions))
        return Nest(tuple(extents), (stage,))

    own = set(outputs)
    return iterate(shape, nest_at)


def concatenate_nests(op: Op, inlined: Callable[[Op], bool]) -> list[Nest]:
    """Return one nest per operand of `op`, a `concatenate`, that stores it to its slice of the result."""
    nests = []
    start = 0
    for operand in op.operands:

        def nest_at(extents: list[int], index: Index, operand: Value = operand, start: int = start) -> Nest:
            reader = PointReader(extents, inlined)
            place = list(index)
            place[op["dimension"]] = place[op["dimension"]].shifted(start)
            stores = stored(op.result, tuple(place), reader.read(operand, index))
            stage = Stage(tuple(reader.leaves), tuple(range(len(extents))), (), tuple(stores))
            return Nest(tuple(extents), (stage,))

        shape = operand.tensor.static_shape
        start += shape[op["dimension"]]
        if all(shape):
            nests.append(iterate(shape, nest_at))
    return nests


def stored(value: Value, index: Index, element: Element) -> list[Store]:
    """Return the stores of `element` to `value` at `index`."""
    tensor = value.tensor
    codes = encode(element, element_type(value))
    address = linear(index, row_major(tensor.static_shape)).scaled(len(codes))
    return [Store(value, address.shifted(part), code) for part, code in enumerate(codes)]


class PointReader:
    """Reads elements of values at points of an iteration space, as expressions over loads and affine forms.

    Ops for which `is_inlined` holds are computed; the results of all others are loaded.
    """

    def __init__(self, extents: list[int], is_inlined: Callable[[Op], bool]) -> None:
        self.extents = extents
        self.leaves: list[Leaf] = []
        self._is_inlined = is_inlined
        self._parameters: dict[Leaf, Expression] = {}
        self._elements: dict[tuple[Value, Index, Expression | None], Element] = {}
        self._mask: Expression | None = None

    def read(self, value: Value, index: Index) -> Element:
        """Return the element of `value` at `index`."""
        op = value.defining_op
        if not all(value.tensor.static_shape):  # empty: the expression is never evaluated
            return element_constant(0, element_type(value))
        array = constant_array(op)
        if array is not None:
            if is_splat(array):
                return element_constant(array[(0,) * array.ndim], element_type(value))
            if all(part.is_constant for part in index):
                return element_constant(array[tuple(part.offset for part in index)], element_type(value))
        if op is None or not self._is_inlined(op):
            return self.load(value, index)
        key = (value, index, self._mask)
        element = self._elements.get(key)
        if element is None:
            element = self._elements[key] = self._computed(op, value, index)
        return element

    def _computed(self, op: Op, value: Value, index: Index) -> Element:
        rule = INDEX_MAPS.get(op.name)
        if rule is not None:
            return rule(op, index, self)
        elements = compute(op, [self.read(operand, index if operand.tensor.rank else ()) for operand in op.operands])
        assert elements is not None, f"{op.name} has no scalar form"
        return elements[op.results.index(value)]

    def load(self, value: Value, index: Index) -> Element:
        """Return the element of `value` at `index`, loaded from its buffer."""
        tensor = value.tensor
        types = memory_types(element_type(value))
        address = linear(index, row_major(tensor.static_shape)).scaled(len(types))
        mask = None if self._lies_inside(address, prod(tensor.static_shape) * len(types)) else self._mask
        codes = [self._leaf(Load(value, address.shifted(part), type, mask), type) for part, type in enumerate(types)]
        return decode(tuple(codes), element_type(value))

    def _lies_inside(self, address: Affine, size: int) -> bool:
        """Return whether `address` is within a buffer of `size` elements at every point, so that it needs no mask."""
        bounds = address.bounds(self.extents)
        return bounds is not None and bounds[0] >= 0 and bounds[1] < size

    def position(self, form: Affine) -> Expression:
        """Return the value of `form` at a point, an i64."""
        if form.is_constant or form.dynamic:
            return form.expression(lambda variable: self._leaf(Position(Affine.of(variable)), I64))
        return self._leaf(Position(form), I64)

    @contextmanager
    def under(self, condition: Expression) -> Iterator[None]:
        """Predicate loads in the body of the `with` by `condition`; masked elements are undefined."""
        before = self._mask
        self._mask = condition if before is None else before & condition
        try:
            yield
        finally:
            self._mask = before

    def _leaf(self, leaf: Leaf, type: MachineType) -> Expression:
        leaf_parameter = self._parameters.get(leaf)
        if leaf_parameter is None:
            leaf_parameter = self._parameters[leaf] = parameter(len(self.leaves), type)
            self.leaves.append(leaf)
        return leaf_parameter


def iterate(shape: Sequence[int], build_nest: Callable[[list[int], Index], Nest]) -> Nest:
    """Return the nest that `build_nest` makes over `shape`, with loops split where an index would not be affine
    otherwise.

    `build_nest` takes the extents of the loop variables and the index of a point, one affine form per dimension.
    """
    factors: list[list[int]] = [[size] for size in shape]
    while True:
        extents: list[int] = []
        index: list[Affine] = []
        owner: list[tuple[int, int]] = []
        for dimension, sizes in enumerate(factors):
            variables = []
            for place, size in enumerate(sizes):
                if size == 1:
                    variables.append(Affine())
                    continue
                variables.append(Affine.of(len(extents)))
                owner.append((dimension, place))
                extents.append(size)
            index.append(linear(variables, row_major(sizes)))
        try:
            return build_nest(extents, tuple(index))
        except Split as split:
            dimension, place = owner[split.variable]
            whole = factors[dimension][place]
            factors[dimension][place : place + 1] = [whole // split.size, split.size]
