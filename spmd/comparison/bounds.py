"""Running error analysis: bounds for the rounding error of every element of every value of a program.

`Bounds` rewrites a function in 64-bit floats. Beside each value it computes bounds of its error, propagated from the
operands to the results of every op. They depend only on the magnitudes that enter an element, never on other elements
of the array. A choice that rounding may decide the other way (a comparison of values that nearly agree) counts for both
outcomes. Source: Higham, "Accuracy and Stability of Numerical Algorithms", section 3.3 (running error bounds), chapter
4 (sums).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from spmd.analysis.comparators import sort_keys
from spmd.analysis.extrema import extremum_of
from spmd.analysis.reducers import monoids_of, returned_argument
from spmd.comparison.bound_rules import ELEMENTWISE, EXACT, GENTLE, ROUNDED_AT_ONE, ROUNDED_ONCE
from spmd.comparison.bound_writer import Writer
from spmd.comparison.formats import Meant, is_inexact
from spmd.comparison.precision import FUNCTION_UNITS, OWN, RunPrecision
from spmd.comparison.retyped import Wide, is_float, wide_target
from spmd.dialects.core import Trait, has_trait
from spmd.dialects.make import make_op
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Region, Value, captured_values, copy_block
from spmd.ir.attributes import DenseAttr
from spmd.types import F64, QuantizedType, TensorType, Type

#: Ops that only move elements, with the number of their operands that are elements (None: all).
_MOVES = {
    "all_gather": None, "all_to_all": None, "broadcast": None, "broadcast_in_dim": None, "collective_broadcast": None,
    "collective_permute": None, "concatenate": None, "dynamic_broadcast_in_dim": 1, "dynamic_pad": 2,
    "dynamic_reshape": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1, "pad": 2, "real_dynamic_slice": 1,
    "reshape": None, "reverse": None, "slice": None, "torch_index_select": 1, "transpose": None,
}  # fmt: skip
#: Sums of products, linear in each of their first two operands.
_PRODUCTS = frozenset(("dot", "dot_general", "convolution", "dynamic_conv"))
_FOLDS = frozenset(("reduce", "reduce_window", "all_reduce", "reduce_scatter"))
#: Ops without a rule are bounded by so many units in the last place of the largest element, as a factorization is.
_WHOLE_UNITS = 256
#: Ops without a rule that are computed in their own types; others are computed in 64-bit floats.
_IN_OWN_TYPES = frozenset(
    ("bitcast_convert", "custom_call", "rng", "rng_bit_generator", "uniform_dequantize", "uniform_quantize")
)
Errors = Sequence[Value | None]


@dataclass(frozen=True)
class BoundedOp:
    """An op, its operands `x` and its results in 64-bit floats, and the operands' bounds in a precision."""

    op: Op
    x: Sequence[Value]
    results: Sequence[Value]
    errors: Errors
    precision: RunPrecision
    write: Writer

    @property
    def name(self) -> str:
        return self.op.name.partition(".")[2]

    @property
    def result(self) -> Value:
        return self.results[0]

    def error(self, at: int) -> Value:
        """Return the bound of an operand, zeros if it is exact."""
        return self.errors[at] or self.write.zeros(self.x[at])

    def rounded(self, error: Value | None, units: float) -> Value | None:
        """Return `error` plus the rounding of the result, `units` times the unit roundoff; 0 at infinity and NaN."""
        type, write = self.op.results[0].type, self.write
        if not is_inexact(type):
            return error
        if units:
            unit = self.precision.unit(type)
            rounding = write.scaled(write.magnitude(self.result), units * unit)
            if not is_inexact(self.op.operands[0].type):  # integers with no more digits than the type are exact
                rounding = write.beyond(rounding, units)
            smallest = self.precision.smallest(type)
            if self.name in ROUNDED_AT_ONE:
                smallest += units * unit
            if smallest and is_inexact(self.op.operands[0].type):
                rounding = write.add(rounding, write.number(smallest, rounding))
            error = rounding if error is None else write.add(error, rounding)
        return None if error is None else write.where_finite(self.result, error)


@dataclass
class Bounds:
    """Computes values in 64-bit floats and bounds of their errors, for a grid of `processes`.

    The bounds are of a program that computes in `precision`, with constants that its own types cannot represent, except
    those that are `meant` exactly. `values` maps the program's values to the new ones, `errors` to their bounds, real
    f64 tensors of the same shape; exact values have none.
    """

    processes: int
    meant: Meant = field(default_factory=Meant)
    precision: RunPrecision = OWN
    values: dict[Value, Value] = field(default_factory=dict)
    errors: dict[Value, Value] = field(default_factory=dict)
    _wide: Wide = field(default_factory=Wide)

    def function(self, body: Block, of: Sequence[Value]) -> Block:
        """Return a body that returns bounds of the values `of` a function's body; the inputs are exact."""
        copy = self._arguments(body)
        self._ops(body, copy)
        write = Writer(copy, body.terminator)
        copy.ops.append(make_op("func.return", [self._bound(value, write) for value in of], []))
        return copy

    def _arguments(self, block: Block) -> Block:
        copy = Block(self._wide.type(argument.type) for argument in block.arguments)
        self.values.update(zip(block.arguments, copy.arguments, strict=True))
        return copy

    def _ops(self, block: Block, out: Block) -> None:
        for op in block.ops[:-1]:
            operands = [self.values.get(operand, operand) for operand in op.operands]
            write = Writer(out, op)
            results, bounds = self._op(op, operands, write)
            self._take(op, results, bounds, write)

    def _take(self, op: Op, results: Sequence[Value], bounds: Errors, write: Writer) -> None:
        """Record the replacements of an op's results, and their bounds."""
        self.values.update(zip(op.results, results, strict=True))
        there = zip(op.results, bounds, strict=True)
        self.errors.update({result: bound for result, bound in there if bound is not None})

    def _bound(self, value: Value, write: Writer) -> Value:
        return self.errors.get(value) or write.zeros(value)

    # --- ops ----------------------------------------------------------------------------------------------------------

    def _op(self, op: Op, x: Sequence[Value], write: Writer) -> tuple[Sequence[Value], Errors]:
        """Return the results in 64-bit floats, and their bounds."""
        types = (*op.operand_types, *op.result_types)
        if not all(type.is_static for type in types if isinstance(type, TensorType)):
            raise CompileError(Diagnostic(op.location, "no error bound is known of sizes that are values", op.name))
        if not op.operands:
            return self._leaf(op, write)
        name, given = op.name.partition(".")[2], [self.errors.get(operand) for operand in op.operands]
        if name in ("while", "if", "case"):
            return self._control_flow(op, x, given, write)
        quantized = any(isinstance(t, TensorType) and isinstance(t.element_type, QuantizedType) for t in types)
        exact = not quantized and not any(map(is_inexact, types))
        if not any(given) and (exact or name in ("optimization_barrier", "sort")):
            return self._same(op, x, write), [None] * len(op.results)
        if name == "sort":
            return self._sorted(op, x, given, write)
        is_own = quantized or (name in _IN_OWN_TYPES and wide_target(op) is None)
        rule = self._of_own_types if is_own else self._rule(op, name)
        if rule == self._elementwise:
            x = [write.broadcast_like(value, op.results[0]) for value in x]
            given = [None if each is None else write.broadcast_like(each, op.results[0]) for each in given]
        results = self._in_own_types(op, x, write) if is_own else self._same(op, x, write)
        if name == "reduce_precision":  # as a convert to such a type and back, except outside of its range
            results = [write.select(write.one("is_finite", [results[0]]), x[0], results[0])]
        return results, rule(BoundedOp(op, x, results, given, self.precision, write))

    def _rule(self, op: Op, name: str) -> Callable[[BoundedOp], Errors]:
        if name == "optimization_barrier":
            return lambda step: step.errors
        if has_trait(op, Trait.ELEMENTWISE):
            return self._elementwise
        if name in _MOVES:
            return self._moved
        if name in _PRODUCTS:
            return self._product
        if name in _FOLDS:
            return self._folded
        if name == "scatter" and len(op.operands) == 3:
            return self._scattered
        if name == "select_and_scatter" and is_float(op.operands[0].type):
            return self._selected
        return self._ranked if name == "top_k" else self._whole

    def _same(self, op: Op, x: Sequence[Value], write: Writer) -> Sequence[Value]:
        """Return the results of the op in wide numbers."""
        return self._wide.op(op, x, dict(self.values) if op.regions else {}, write.block)

    def _leaf(self, op: Op, write: Writer) -> tuple[Sequence[Value], Errors]:
        results, error = self._same(op, (), write), None
        constant = op["value"].array if op.name == "stablehlo.constant" and isinstance(op["value"], DenseAttr) else None
        if constant is not None and is_inexact(op.results[0].type):
            splat = constant.size > 0 and not any(constant.strides)
            apart = self.meant.errors(constant.reshape(-1)[:1] if splat else constant)
            if apart.any():
                whole = np.broadcast_to(apart.reshape(()), constant.shape) if splat else apart
                error = write.constant(whole, TensorType(constant.shape, F64))
        return results, [error] * len(op.results)

    def _moved(self, step: BoundedOp) -> Errors:
        write, elements = step.write, _MOVES[step.name]
        elements = len(step.x) if elements is None else elements
        places = [error for error in step.errors[elements:] if error is not None]
        bounds: list[Value | None] = [None] * len(step.results)
        if any(step.errors[:elements]):
            bounds = [*write.again(step.op, [*map(step.error, range(elements)), *step.x[elements:]])]
        for place in places:
            bounds = [
                write.total([bound, write.unknown_all(place, result)])
                for bound, result in zip(bounds, step.results, strict=True)
            ]
        return bounds

    def _product(self, step: BoundedOp) -> Errors:
        write, rest = step.write, step.x[2:]
        sizes = [write.magnitude(value) for value in step.x[:2]]

        def product(left: Value, right: Value) -> Value:
            return write.again(step.op, [left, right, *rest])[0]

        error = write.scaled(product(*sizes), step.precision.sum_unit(step.op.results[0].type, _terms(step.op)))
        left, right = step.errors[:2]
        if left is not None:
            error = write.add(error, product(left, sizes[1]))
        if right is not None:
            error = write.add(error, product(sizes[0] if left is None else write.add(sizes[0], left), right))
        return [step.rounded(error, 0)]

    # --- elementwise --------------------------------------------------------------------------------------------------

    def _elementwise(self, step: BoundedOp) -> Errors:
        op, name, write = step.op, step.name, step.write
        rule, units = ELEMENTWISE.get(name), 0 if name in EXACT else 1 if name in ROUNDED_ONCE else FUNCTION_UNITS
        if name == "reduce_precision":
            bits = (
                0.0 if step.precision.wide else 2.0 ** -int(op["mantissa_bits"]) / step.precision.unit(op.result.type)
            )
            return [step.rounded(step.errors[0], bits)]
        if name == "convert" and (is_inexact(op.results[0].type) or not is_inexact(op.operands[0].type)):
            error = step.errors[0]
        elif rule is not None:
            error = rule(write, step.result, step.x, step.errors) if any(step.errors) else None
        elif not is_inexact(op.operands[0].type):
            error = write.unknown(step.errors, step.result) if any(step.errors) else None
        else:
            error = self._disturbed(step)
        return [step.rounded(error, units)]

    def _disturbed(self, step: BoundedOp) -> Value | None:
        """Return how far the result moves if each operand moves by its bound, up or down."""
        write, moved = step.write, list[Value | None]()
        for at, (value, error) in enumerate(zip(step.x, step.errors, strict=True)):
            own, type = None, step.op.operands[at].type
            if step.name not in EXACT | ROUNDED_ONCE and is_inexact(type):
                own = write.scaled(write.magnitude(value), 2 * step.precision.unit(type))
            apart = write.total([error, own])
            if apart is None:
                continue
            if step.name in GENTLE and is_float(type):
                moved.append(write.binary("minimum", apart, write.number(2.0, apart)))
                continue
            for other in write.around(value, apart):
                (there,) = self._same(step.op, [*step.x[:at], other, *step.x[at + 1 :]], write)
                moved.append(write.gap(there, step.result))
        return write.largest(moved)

    # --- folds --------------------------------------------------------------------------------------------------------

    def _folded(self, step: BoundedOp) -> Errors:
        op, write = step.op, step.write
        monoids = monoids_of(op.regions[0])
        if monoids is None:
            return self._unknown_fold(step)
        if len(monoids) < len(op.results):  # a collective folds each of its operands by one computation
            monoids = [*monoids] * len(op.results)
        bounds, ends = list[Value | None](), None
        for at, monoid in enumerate(monoids):
            pairs = range(at, len(step.x), len(op.results))
            result, type = step.results[at], op.results[at].type
            sizes = [write.magnitude(step.x[each]) for each in pairs]
            given = [step.error(each) for each in pairs] if any(step.errors[each] for each in pairs) else None
            error, units = None, self._fold_unit(step, type)
            if monoid.kind == "multiply":
                sums = sizes if given is None else [write.add(size, e) for size, e in zip(sizes, given, strict=True)]
                most = write.folded(op, "multiply", sums)
                error = write.add(write.subtract(most, write.folded(op, "multiply", sizes)), write.scaled(most, units))
            elif monoid.kind == "add":
                error = write.scaled(write.folded(op, "add", sizes), units) if units else None
                error = error if given is None else write.total([error, write.folded(op, "add", given)])
            elif given is not None and is_float(type):
                ends = ends or [self._same(op, moved, write) for moved in write.ends(step.x, step.errors)]
                error = write.between(result, ends[0][at], ends[1][at])
            elif given is not None:
                error = write.folded(op, "maximum", given)
            bounds.append(error if error is None or not is_inexact(type) else write.where_finite(result, error))
        return bounds

    def _fold_unit(self, step: BoundedOp, type: Type) -> float:
        if step.name == "reduce":
            return step.precision.reduction_unit(type, self._count(step.op, step.name))
        return step.precision.sum_unit(type, self._count(step.op, step.name))

    def _unknown_fold(self, step: BoundedOp) -> Errors:
        """Bound a region that is not a monoid: each step may pass on the largest error, and rounds.

        The index that an argmax returns may be that of any value close to the largest.
        """
        op, write = step.op, step.write
        count, bounds = len(op.results), list[Value | None]()
        picks = step.name == "reduce" and is_float(op.results[0].type) and extremum_of(op.regions[0]) is not None
        if picks and not step.errors[0]:
            return [None] * count
        for at, result in enumerate(op.results):
            pairs = range(at, len(step.x), count)
            if picks and at:
                bounds.append(self._picked(step, at, bounds[0]))
            elif picks:
                ends = [self._same(op, moved, write)[0] for moved in write.ends(step.x, step.errors)]
                bounds.append(write.between(step.result, *ends))
            elif is_inexact(result.type):
                units = self._fold_unit(step, result.type)
                terms = [write.add(step.error(at), write.scaled(write.magnitude(step.x[at]), units)) for at in pairs]
                bounds.append(write.folded(op, "maximum", terms))
            else:
                bounds.append(None)
        return bounds

    def _picked(self, step: BoundedOp, at: int, bound: Value | None) -> Value:
        """Return how far a picked value may be off: any value beside a candidate for the largest may be picked."""
        write, shape = step.write, step.x[0].tensor.static_shape
        kept = tuple(axis for axis in range(len(shape)) if axis not in step.op["dimensions"])

        def each(value: Value) -> Value:
            return write.one("broadcast_in_dim", [value], value.tensor.with_shape(shape), broadcast_dimensions=kept)

        assert bound is not None
        reach = write.add(step.error(0), each(bound))
        near = write.near(write.gap(step.x[0], each(step.result)), reach)
        apart = write.gap(write.real(step.x[at]), write.real(each(step.results[at])))
        return write.reduce(
            "stablehlo.maximum",
            write.select(near, apart, write.zeros(apart)),
            write.splat(0.0, TensorType((), F64)),
            step.op["dimensions"],
        )

    def _count(self, op: Op, name: str) -> int:
        """Return the number of elements folded into one."""
        if name == "reduce":
            return int(prod(op.operands[0].tensor.static_shape[d] for d in op["dimensions"])) + 1
        return int(prod(op["window_dimensions"])) + 1 if name == "reduce_window" else self.processes

    def _scattered(self, step: BoundedOp) -> Errors:
        error = self._at_places(step)
        if step.errors[1] is not None:
            error = step.write.total([error, step.write.unknown_all(step.errors[1], step.result)])
        return [error]

    def _at_places(self, step: BoundedOp) -> Value | None:
        op, write, (operand, places, update) = step.op, step.write, step.x
        given = [step.error(0), places, step.error(2)]
        is_given = bool(step.errors[0] or step.errors[2])
        monoids = monoids_of(op.regions[0])
        if returned_argument(op.regions[0]) == 1:
            return write.again(op, given, [write.second()])[0] if is_given else None
        if monoids is None:
            return self._whole(step)[0]
        kind, unit, error = monoids[0].kind, step.precision.sum_unit(op.results[0].type, 1), None
        if kind not in ("add", "multiply"):
            return write.again(op, given, [write.folding("maximum")])[0] if is_given else None

        def scattered(onto: Value, updates: Value, how: str = kind) -> Value:
            return write.again(op, [onto, places, updates], [write.folding(how)])[0]

        sizes = write.magnitude(operand), write.magnitude(update)
        if unit:
            counts = scattered(write.zeros(operand), write.number(1.0, sizes[1]), "add")
            error = write.multiply(write.scaled(scattered(*sizes), unit), write.add(counts, write.number(1.0, counts)))
        if is_given and kind == "add":
            error = write.total([error, scattered(given[0], given[2])])
        elif is_given:
            most = scattered(write.add(sizes[0], given[0]), write.add(sizes[1], given[2]))
            error = write.total([error, write.subtract(most, scattered(*sizes))])
        return error if error is None or not unit else write.where_finite(step.result, error)

    def _selected(self, step: BoundedOp) -> Errors:
        """Add sources at the positions selected by the values, which are taken as exact."""
        op, write = step.op, step.write
        select = self._wide.region(op.regions[0], dict(self.values))
        terms = prod(op["window_dimensions"]) if op["window_dimensions"] else 1
        rounding = write.scaled(write.magnitude(step.x[1]), step.precision.sum_unit(op.results[0].type, terms))
        source = write.add(step.error(1), rounding)
        zero = write.number(0.0, step.x[2])
        return list(write.again(op, [step.x[0], source, zero], [select, write.folding("add")]))

    # --- orders -------------------------------------------------------------------------------------------------------

    def _sorted(self, op: Op, x: Sequence[Value], given: Errors, write: Writer) -> tuple[Sequence[Value], Errors]:
        """Sort bounds along with their values.

        Keys are bounded by sorting keys moved up and down; what accompanies keys too close for their order to be
        certain has an infinite bound.
        """
        bounds = [error or write.zeros(value) for error, value in zip(given, x, strict=True)]
        region = self._wide.region(op.regions[0], dict(self.values))
        for _ in bounds:
            for _ in range(2):
                region.block.add_argument(TensorType((), F64))
        types = [value.type for value in (*x, *bounds)]
        sorted_ = write.op(op.name, [*x, *bounds], types, dict(op.attributes), [region]).results
        results = sorted_[: len(x)]
        return results, self._in_order(BoundedOp(op, x, results, given, self.precision, write), sorted_[len(x) :])

    def _in_order(self, step: BoundedOp, carried: Sequence[Value]) -> Errors:
        op, write = step.op, step.write
        keys = sort_keys(op.regions[0])
        if keys is None or any(key.operand is None for key in keys):
            unsure = write.total([error for error in step.errors if error is not None])
            assert unsure is not None
            return [write.unknown_all(unsure, result) for result in step.results]
        by = [key.operand for key in keys if key.operand is not None and step.errors[key.operand] is not None]
        bounds: list[Value | None] = list(carried)
        near: Value | None = None
        for key in by:
            moved = [[*step.x[:key], end[key], *step.x[key + 1 :]] for end in write.ends(step.x, step.errors)]
            if is_float(op.results[key].type):
                ends = [self._same(op, each, write)[key] for each in moved]
                bounds[key] = write.between(step.results[key], *ends)
            unsure = write.near_neighbours(step.results[key], carried[key], op["dimension"] % op.result.tensor.rank)
            near = unsure if near is None else write.one("or", [near, unsure])
        if near is None:
            return bounds
        return [
            bound if at in by or bound is None else write.select(near, write.number(np.inf, bound), bound)
            for at, bound in enumerate(bounds)
        ]

    def _ranked(self, step: BoundedOp) -> Errors:
        """Bound the largest values by those of values moved up and down; the indices of close neighbours
        are uncertain.
        """
        op, write = step.op, step.write
        if step.errors[0] is None or not is_float(op.operands[0].type):
            return [None, None]
        ends = [self._same(op, moved, write)[0] for moved in write.ends(step.x, step.errors)]
        values, bound = step.results[0], write.between(step.results[0], *ends)
        count, last = op["k"], op.operands[0].tensor.rank - 1
        more = min(count + 1, op.operands[0].tensor.static_shape[last])
        if more > count:  # the first value left out is the last one's neighbour
            ranked = [
                write.op(op.name, [value], None, {**op.attributes, "k": more}).results[0]
                for value in (step.x[0], *(end[0] for end in write.ends(step.x, step.errors)))
            ]
            values, bound = ranked[0], write.between(*ranked)
        near = write.near_neighbours(values, bound, last)
        unsure = write.slice(write.select(near, write.number(np.inf, bound), write.zeros(bound)), last, 0, count)
        return [write.slice(bound, last, 0, count), unsure]

    # --- control flow -------------------------------------------------------------------------------------------------

    def _control_flow(self, op: Op, x: Sequence[Value], given: Errors, write: Writer) -> tuple[Sequence[Value], Errors]:
        """Carry the bounds of floats through loops and branches as additional state."""
        loops = op.name == "stablehlo.while"
        carried = [at for at, type in enumerate(op.result_types) if is_inexact(type)]
        bounds = [given[at] or write.zeros(x[at]) for at in carried] if loops else []
        regions = [
            self._region(region, carried if loops else (), () if loops and not at else carried)
            for at, region in enumerate(op.regions)
        ]
        types = [self._wide.type(type) for type in op.result_types]
        types += [TensorType(op.results[at].tensor.shape, F64) for at in carried]
        results = write.op(op.name, [*x, *bounds], types, dict(op.attributes), regions).results
        found: list[Value | None] = [None] * len(op.results)
        for at, bound in zip(carried, results[len(op.results) :], strict=True):
            unsure = None if loops or given[0] is None else write.unknown_all(given[0], bound)
            found[at] = write.total([bound, unsure])
        return results[: len(op.results)], found

    def _region(self, region: Region, taken: Sequence[int], given: Sequence[int]) -> Region:
        """Return a region that also takes bounds of its arguments `taken`, and returns those of its results `given`."""
        block = region.block
        copy = self._arguments(block)
        for at in taken:
            argument = block.arguments[at]
            self.errors[argument] = copy.add_argument(TensorType(argument.tensor.shape, F64))
        self._ops(block, copy)
        write = Writer(copy, block.terminator)
        returned = block.terminator.operands
        values = [self.values.get(value, value) for value in returned]
        write.op(block.terminator.name, [*values, *(self._bound(returned[at], write) for at in given)], [])
        return Region([copy])

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _whole(self, step: BoundedOp) -> Errors:
        """Bound ops without a rule.

        A float result is off by units of the largest element, and by the operands' relative errors; other results are
        unknown if an operand is uncertain.
        """
        op, write, name = step.op, step.write, step.name
        pairs = [(value, error) for value, error in zip(step.x, step.errors, strict=True) if error is not None]
        relative = [write.relative(value, error) for value, error in pairs]
        bounds: list[Value | None] = []
        for result, value in zip(op.results, step.results, strict=True):
            unsure = [write.unknown_all(error, value) for _, error in pairs]
            if not is_inexact(result.type) or name == "bitcast_convert":
                bounds.append(write.total(unsure))
                continue
            largest = write.largest_element(write.magnitude(value))
            share = write.total([write.number(_WHOLE_UNITS * step.precision.unit(result.type), largest), *relative])
            assert share is not None
            bounds.append(write.broadcast(write.multiply(largest, share), value.tensor.shape))
        return bounds

    def _of_own_types(self, step: BoundedOp) -> Errors:
        """Bound what is computed in the program's own types."""
        return self._whole(step)

    def _in_own_types(self, op: Op, x: Sequence[Value], write: Writer) -> Sequence[Value]:
        if any(is_inexact(value.type) for value in captured_values(op)):
            raise CompileError(Diagnostic(op.location, "no error bound is known of what its region reads", op.name))
        operands = [
            write.one("convert", [value], operand.type) if value.type != operand.type else value
            for value, operand in zip(x, op.operands, strict=True)
        ]
        made = op.clone(
            operands, regions=[Region(copy_block(block, dict(self.values)) for block in r.blocks) for r in op.regions]
        )
        write.ops.append(made)
        return [
            write.one("convert", [result], self._wide.type(result.type)) if is_inexact(result.type) else result
            for result in made.results
        ]


def _terms(op: Op) -> int:
    """Return the number of products that are summed into one element of a product of two arrays."""
    left, right = (operand.tensor.static_shape for operand in op.operands[:2])
    if op.name == "stablehlo.dot_general":
        return int(prod(left[d] for d in op["dot_dimension_numbers"].lhs_contracting_dimensions))
    if op.name == "stablehlo.dot":
        return left[-1]
    return int(prod(right) // max(right[op["dimension_numbers"].kernel_output_feature_dimension], 1))
