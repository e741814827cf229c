"""How far rounding can take each value of a program from what it means: a bound for every element, computed beside it.

`Bounds` writes a function anew in 64-bit floats. Beside each value stands a bound of its error, carried from the
operands to the results of every op: running error analysis. It depends on the magnitudes that meet in that element
alone, never on other elements of the array. A choice that rounding may decide the other way (a comparison of values
that nearly agree) counts for both outcomes. Source: Higham, "Accuracy and Stability of Numerical Algorithms", section
3.3 (running error bounds), chapter 4 (sums).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from spmd.analysis.reducers import Monoid, monoids_of, returned_argument
from spmd.comparison.bound_rules import ELEMENTWISE, EXACT, FUNCTION_UNITS, ROUNDED_ONCE
from spmd.comparison.bound_writer import Writer
from spmd.comparison.formats import is_inexact, representation_error, smallest_normal, unit_roundoff
from spmd.comparison.retyped import Wide, is_float
from spmd.dialects.core import Trait, has_trait
from spmd.dialects.make import make_op
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Region, Value, captured_values, copy_block
from spmd.ir.attributes import DenseAttr
from spmd.types import F64, ElementType, QuantizedType, TensorType, Type

#: Ops that move elements and compute nothing: how many of their operands are elements (None: all).
_MOVES = {
    "all_gather": None, "all_to_all": None, "broadcast": None, "broadcast_in_dim": None, "collective_broadcast": None,
    "collective_permute": None, "concatenate": None, "dynamic_broadcast_in_dim": 1, "dynamic_pad": 2,
    "dynamic_reshape": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1, "pad": 2, "real_dynamic_slice": 1,
    "reshape": None, "reverse": None, "slice": None, "torch_index_select": 1, "transpose": None,
}  # fmt: skip
#: Sums of products, linear in each of their two first operands.
_PRODUCTS = frozenset(("dot", "dot_general", "convolution", "dynamic_conv"))
#: What has no rule is judged by the largest element, this many units in its last place, as a factorization is.
_WHOLE_UNITS = 256
#: Ops without a rule that are computed in 64-bit floats all the same; others are computed in their own types.
_WHOLE_IN_WIDE = frozenset(("stablehlo.cholesky", "stablehlo.fft", "stablehlo.triangular_solve"))


@dataclass
class Bounds:
    """Writes values in 64-bit floats, and bounds of their errors, for a grid of `processes`.

    The bounds are of a program that computes in its own types, or, `in_wide`, in 64-bit floats: what is left then are
    constants that its own types cannot hold. `values` maps the program's values to the new ones, `errors` to their
    bounds, real tensors of f64 of the same shape; what is exact has none.
    """

    processes: int
    in_wide: bool
    values: dict[Value, Value] = field(default_factory=dict)
    errors: dict[Value, Value] = field(default_factory=dict)
    _wide: Wide = field(default_factory=Wide)

    def function(self, body: Block, of: Sequence[Value]) -> Block:
        """A body that gives the values `of` a function's body, and then their bounds; the inputs are exact."""
        copy = self._arguments(body)
        self._ops(body, copy)
        write = Writer(copy, body.terminator)
        results = [self.values.get(value, value) for value in of]
        bounds = [self._bound(value, write) for value in of]
        copy.ops.append(make_op("func.return", [*results, *bounds], []))
        return copy

    def _arguments(self, block: Block) -> Block:
        copy = Block(self._wide.type(argument.type) for argument in block.arguments)
        self.values.update(zip(block.arguments, copy.arguments, strict=True))
        return copy

    def _ops(self, block: Block, out: Block) -> None:
        for op in block.ops[:-1]:
            operands = [self.values.get(operand, operand) for operand in op.operands]
            write = Writer(out, op)
            results, errors = self._op(op, operands, write)
            self.values.update(zip(op.results, results, strict=True))
            for result, error in zip(op.results, errors, strict=True):
                if error is not None:
                    self.errors[result] = error

    def _bound(self, value: Value, write: Writer) -> Value:
        return self.errors.get(value) or write.zeros(value)

    # --- rounding -----------------------------------------------------------------------------------------------------

    def _unit(self, type: Type) -> float:
        """The unit roundoff of what computes values of `type`."""
        return _unit_of(TensorType((), F64) if self.in_wide and is_inexact(type) else type)

    def _sum_unit(self, type: Type, terms: int) -> float:
        """What a sum of `terms` terms may be off, relative to the sum of their magnitudes."""
        assert isinstance(type, TensorType) and isinstance(type.element_type, ElementType)
        if not is_inexact(type):
            return 0.0
        if self.in_wide:
            return terms * unit_roundoff(F64)
        return terms * unit_roundoff(Monoid("add", type.element_type).accumulator) + FUNCTION_UNITS * self._unit(type)

    def _rounded(self, op: Op, write: Writer, result: Value, error: Value | None, units: float) -> Value | None:
        """`error` and the rounding of the result, `units` times the unit roundoff; nothing of infinity and NaN."""
        type = op.results[0].type
        if not is_inexact(type):
            return error
        assert isinstance(type, TensorType) and isinstance(type.element_type, ElementType)
        if units:
            rounding = write.scaled(write.magnitude(result), units * self._unit(type))
            if not self.in_wide:
                rounding = write.add(rounding, write.number(smallest_normal(type.element_type), rounding))
            error = rounding if error is None else write.add(error, rounding)
        return None if error is None else write.where_finite(result, error)

    # --- ops ----------------------------------------------------------------------------------------------------------

    def _op(self, op: Op, x: Sequence[Value], write: Writer) -> tuple[Sequence[Value], list[Value | None]]:
        name = op.name.removeprefix("stablehlo.")
        errors = [self.errors.get(operand) for operand in op.operands]
        types = (*op.operand_types, *op.result_types)
        if not all(type.is_static for type in types if isinstance(type, TensorType)):
            raise CompileError(Diagnostic(op.location, "no error bound is known of sizes that are values", op.name))
        if not op.operands:
            return self._leaf(op, write)
        if any(isinstance(type, TensorType) and isinstance(type.element_type, QuantizedType) for type in types):
            return self._whole(op, x, errors, write)
        if name in ("while", "if", "case"):
            return self._control_flow(op, x, errors, write)
        if not any(map(is_inexact, types)) and not any(errors):
            return self._same(op, x, write), [None] * len(op.results)
        if name in _MOVES:
            return self._moved(op, x, errors, _MOVES[name], write)
        if name == "optimization_barrier":
            return self._same(op, x, write), errors
        if name in _PRODUCTS:
            return self._product(op, x, errors, write)
        if name == "bitcast_convert":
            return self._whole(op, x, [None] * len(x), write)
        if has_trait(op, Trait.ELEMENTWISE):
            return self._elementwise(op, name, x, errors, write)
        if name in ("reduce", "reduce_window", "all_reduce", "reduce_scatter"):
            return self._folded(op, name, x, errors, write)
        if name == "scatter" and len(op.operands) == 3:
            return self._scattered(op, x, errors, write)
        if name == "select_and_scatter":
            return self._selected(op, x, errors, write)
        if name == "sort":
            return self._sorted(op, x, errors, write)
        return self._whole(op, x, errors, write)

    def _same(self, op: Op, x: Sequence[Value], write: Writer) -> Sequence[Value]:
        """The op itself, in wide numbers."""
        return self._wide.op(op, x, dict(self.values) if op.regions else {}, write.block)

    def _leaf(self, op: Op, write: Writer) -> tuple[Sequence[Value], list[Value | None]]:
        results = self._same(op, (), write)
        constant = op["value"].array if op.name == "stablehlo.constant" and isinstance(op["value"], DenseAttr) else None
        if constant is None or not is_inexact(op.results[0].type):
            return results, [None] * len(op.results)
        splat = constant.size > 0 and not any(constant.strides)
        error = representation_error(constant.reshape(-1)[:1] if splat else constant)
        if not error.any():
            return results, [None]
        whole = np.broadcast_to(error.reshape(()), constant.shape) if splat else error
        return results, [write.constant(whole, TensorType(constant.shape, F64))]

    def _moved(
        self, op: Op, x: Sequence[Value], errors: Sequence[Value | None], elements: int | None, write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        results = self._same(op, x, write)
        elements = len(x) if elements is None else elements
        if not any(errors[:elements]):
            return results, [None] * len(results)
        bounds = [error or write.zeros(value) for error, value in zip(errors[:elements], x, strict=False)]
        return results, list(write.again(op, [*bounds, *x[elements:]]))

    def _product(
        self, op: Op, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        (result,) = self._same(op, x, write)
        sizes = [write.magnitude(value) for value in x[:2]]
        rest = x[2:]

        def product(left: Value, right: Value) -> Value:
            return write.again(op, [left, right, *rest])[0]

        error = write.scaled(product(*sizes), self._sum_unit(op.results[0].type, _terms(op)))
        left, right = errors[:2]
        if left is not None:
            error = write.add(error, product(left, sizes[1]))
        if right is not None:
            error = write.add(error, product(sizes[0] if left is None else write.add(sizes[0], left), right))
        return [result], [self._rounded(op, write, result, error, 0)]

    def _elementwise(
        self, op: Op, name: str, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        x = [write.broadcast_like(value, op.results[0]) for value in x]
        errors = [None if error is None else write.broadcast_like(error, op.results[0]) for error in errors]
        (result,) = self._same(op, x, write)
        rule = ELEMENTWISE.get(name)
        if name == "convert" and (is_inexact(op.results[0].type) or not is_inexact(op.operands[0].type)):
            error = errors[0]
        elif rule is not None:
            error = rule(write, result, x, errors) if any(errors) else None
        elif not is_inexact(op.operands[0].type):
            error = write.unknown(errors, result) if any(errors) else None
        else:
            error = self._disturbed(op, name, result, x, errors, write)
        if name == "reduce_precision":
            error = write.total([error, write.scaled(write.magnitude(result), 2.0 ** -int(op["mantissa_bits"]))])
        units = 0 if name in EXACT else 1 if name in ROUNDED_ONCE else FUNCTION_UNITS
        return [result], [self._rounded(op, write, result, error, units)]

    def _disturbed(
        self, op: Op, name: str, result: Value, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> Value | None:
        """How far the result moves where each operand moves by its bound, up or down."""
        moved: list[Value | None] = []
        for at, (value, error) in enumerate(zip(x, errors, strict=True)):
            own = None
            if name not in EXACT | ROUNDED_ONCE and is_inexact(op.operands[at].type):
                own = write.scaled(write.magnitude(value), 2 * self._unit(op.operands[at].type))
            step = write.total([error, own])
            if step is None:
                continue
            for other in write.around(value, step):
                (there,) = self._same(op, [*x[:at], other, *x[at + 1 :]], write)
                moved.append(write.gap(there, result))
        return write.largest(moved)

    def _folded(
        self, op: Op, name: str, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        results = self._same(op, x, write)
        monoids = monoids_of(op.regions[0])
        if monoids is None:
            return results, self._unknown_fold(op, name, x, errors, write)
        bounds: list[Value | None] = []
        for at, monoid in enumerate(monoids):
            pairs = range(at, len(x), len(op.results))
            given = [errors[each] or write.zeros(x[each]) for each in pairs]
            sizes = [write.magnitude(x[each]) for each in pairs]
            units, error = self._sum_unit(op.results[at].type, self._count(op, name)), None
            if monoid.kind == "multiply":
                most = write.folded(op, "multiply", [write.add(size, e) for size, e in zip(sizes, given, strict=True)])
                error = write.add(write.subtract(most, write.folded(op, "multiply", sizes)), write.scaled(most, units))
            elif monoid.kind == "add":
                error = write.scaled(write.folded(op, "add", sizes), units)
                if any(errors[each] for each in pairs):
                    error = write.add(error, write.folded(op, "add", given))
            elif any(errors[each] for each in pairs):
                error = write.folded(op, "maximum", given)
            bounds.append(None if error is None else write.where_finite(results[at], error))
        return results, bounds

    def _unknown_fold(
        self, op: Op, name: str, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> list[Value | None]:
        """Of a region that is no monoid, as that of an argmax: each step may pass on the largest error, and rounds."""
        bounds = list[Value | None]()
        for at, result in enumerate(op.results):
            if not is_inexact(result.type):
                bounds.append(None)
                continue
            pairs = range(at, len(x), len(op.results))
            units = self._sum_unit(result.type, self._count(op, name))
            terms = [
                write.add(errors[each] or write.zeros(x[each]), write.scaled(write.magnitude(x[each]), units))
                for each in pairs
            ]
            bounds.append(write.folded(op, "maximum", terms))
        return bounds

    def _count(self, op: Op, name: str) -> int:
        """How many elements are folded into one."""
        if name == "reduce":
            return int(prod(op.operands[0].tensor.static_shape[d] for d in op["dimensions"])) + 1
        return int(prod(op["window_dimensions"])) + 1 if name == "reduce_window" else self.processes

    def _scattered(
        self, op: Op, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        (result,) = self._same(op, x, write)
        operand, places, update = x
        given = [errors[0] or write.zeros(operand), places, errors[2] or write.zeros(update)]
        monoids = monoids_of(op.regions[0])
        if returned_argument(op.regions[0]) == 1:
            error = write.again(op, given, [write.second()])[0] if errors[0] or errors[2] else None
            return [result], [error]
        if monoids is None or monoids[0].kind == "multiply":
            return self._whole(op, x, errors, write)
        if monoids[0].kind != "add":
            error = write.again(op, given, [write.folding("maximum")])[0] if errors[0] or errors[2] else None
            return [result], [error]
        adding = [write.folding("add")]
        counts = write.again(op, [write.zeros(operand), places, write.number(1.0, write.zeros(update))], adding)[0]
        sizes = write.again(op, [write.magnitude(operand), places, write.magnitude(update)], adding)[0]
        unit = self._sum_unit(op.results[0].type, 1)
        error = write.multiply(write.scaled(sizes, unit), write.add(counts, write.number(1.0, counts)))
        if errors[0] or errors[2]:
            error = write.add(error, write.again(op, given, adding)[0])
        return [result], [write.where_finite(result, error)]

    def _selected(
        self, op: Op, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        """Sources are added where the values, which are taken for certain, select."""
        (result,) = self._same(op, x, write)
        if not is_float(op.operands[0].type):
            return self._whole(op, x, errors, write)
        select = self._wide.region(op.regions[0], dict(self.values))
        terms = prod(op["window_dimensions"]) if op["window_dimensions"] else 1
        rounding = write.scaled(write.magnitude(x[1]), self._sum_unit(op.results[0].type, terms))
        source = write.total([errors[1], rounding])
        assert source is not None
        zero = write.number(0.0, x[2])
        return [result], list(write.again(op, [x[0], source, zero], [select, write.folding("add")]))

    def _sorted(
        self, op: Op, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        """Bounds take the places of their values."""
        bounds = [error or write.zeros(value) for error, value in zip(errors, x, strict=True)]
        region = self._wide.region(op.regions[0], dict(self.values))
        for _ in bounds:
            for _ in range(2):
                region.block.add_argument(TensorType((), F64))
        types = [value.type for value in (*x, *bounds)]
        results = write.op(op.name, [*x, *bounds], types, dict(op.attributes), [region]).results
        return results[: len(x)], list(results[len(x) :])

    def _control_flow(
        self, op: Op, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        """Loops and branches carry the bounds of their floats as further state."""
        loops = op.name == "stablehlo.while"
        carried = [at for at, type in enumerate(op.result_types) if is_inexact(type)]
        operands = [*x, *(errors[at] or write.zeros(x[at]) for at in carried)] if loops else list(x)
        regions = [
            self._region(region, carried if loops else (), () if loops and not at else carried)
            for at, region in enumerate(op.regions)
        ]
        types = [self._wide.type(type) for type in op.result_types]
        types += [TensorType(op.results[at].tensor.shape, F64) for at in carried]
        results = write.op(op.name, operands, types, dict(op.attributes), regions).results
        bounds: list[Value | None] = [None] * len(op.results)
        for at, bound in zip(carried, results[len(op.results) :], strict=True):
            bounds[at] = bound
        return results[: len(op.results)], bounds

    def _region(self, region: Region, taken: Sequence[int], given: Sequence[int]) -> Region:
        """A region whose block also takes the bounds of its arguments `taken`, and returns those of `given`."""
        block = region.block
        copy = self._arguments(block)
        for at in taken:
            self.errors[block.arguments[at]] = copy.add_argument(TensorType(block.arguments[at].tensor.shape, F64))
        self._ops(block, copy)
        write = Writer(copy, block.terminator)
        returned = block.terminator.operands
        values = [self.values.get(value, value) for value in returned]
        bounds = [self._bound(returned[at], write) for at in given]
        write.op(block.terminator.name, [*values, *bounds], [])
        return Region([copy])

    def _whole(
        self, op: Op, x: Sequence[Value], errors: Sequence[Value | None], write: Writer
    ) -> tuple[Sequence[Value], list[Value | None]]:
        """What has no rule of its own is off by units of the largest element, and as the operands are, relative to
        theirs. It is computed in the program's own types, but for what computes in 64-bit floats just so."""
        if op.name in _WHOLE_IN_WIDE:
            results = self._same(op, x, write)
            units = [self._unit(type) for type in op.result_types]
        else:
            results = self._in_own_types(op, x, write)
            units = [_unit_of(type) for type in op.result_types]
        relative = [write.relative(value, error) for value, error in zip(x, errors, strict=True) if error is not None]
        bounds: list[Value | None] = []
        for result, value, unit in zip(op.results, results, units, strict=True):
            if not is_inexact(result.type) or op.name == "stablehlo.bitcast_convert":
                bounds.append(None)
                continue
            largest = write.largest_element(write.magnitude(value))
            share = write.total([write.number(_WHOLE_UNITS * unit, largest), *relative])
            assert share is not None
            bounds.append(write.broadcast(write.multiply(largest, share), value.tensor.shape))
        return results, bounds

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


def _unit_of(type: Type) -> float:
    """The unit roundoff of a type's elements; 0 of those that are exact."""
    element = type.element_type if isinstance(type, TensorType) else None
    return unit_roundoff(element) if isinstance(element, ElementType) and is_inexact(type) else 0.0


def _terms(op: Op) -> int:
    """How many products an element of a product of two arrays adds up."""
    left, right = (operand.tensor.static_shape for operand in op.operands[:2])
    if op.name == "stablehlo.dot_general":
        return int(prod(left[d] for d in op["dot_dimension_numbers"].lhs_contracting_dimensions))
    if op.name == "stablehlo.dot":
        return left[-1]
    return int(prod(right) // max(right[op["dimension_numbers"].kernel_output_feature_dimension], 1))
