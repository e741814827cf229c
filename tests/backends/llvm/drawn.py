"""Random programs of everything that loop nests are made of, for comparing back ends."""

from math import prod

import numpy as np
from hypothesis import strategies as st

import spmd
from spmd.builder import F32, PRED, S8, S16, S32, U8, GatherDimensionNumbers, Shape, XlaBuilder, ops


class DrawnUnits:
    """A program that grows: what is drawn next takes any value that is there."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw = draw
        self.b = XlaBuilder("drawn")
        self.values = []
        self.arguments = []
        for _ in range(self.one_of([1, 2, 3])):
            shape = tuple(draw.draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 33]), min_size=0, max_size=3)))
            number = len(self.arguments)
            argument = ops.Parameter(self.b, number, Shape.array_shape(F32, shape), f"p{number}")
            self.values.append((argument, shape))
            self.arguments.append(shape)

    def one_of(self, choices):
        return self.draw.draw(st.sampled_from(list(choices)))

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            value, shape = self.one_of(self.values)
            grown = getattr(self, "_" + self.one_of(self.KINDS))(value, shape)
            if grown is not None and prod(grown[1]) <= 20_000:
                self.values.append(grown)

    KINDS = ("binary", "unary", "select", "broadcast", "transpose", "reshape", "slice", "reverse", "pad", "concatenate",
             "reduce", "reduce", "maximum", "iota", "row", "update", "dot", "rows", "truths", "counts", "lookup",
             "loop")  # fmt: skip

    def _same(self, shape):
        return [value for value, other in self.values if other == shape]

    def _binary(self, value, shape):
        other = self.one_of(self._same(shape))
        return self.one_of([ops.Add, ops.Sub, ops.Mul, ops.Max, ops.Min])(value, other), shape

    def _unary(self, value, shape):
        return self.one_of([ops.Neg, ops.Abs, ops.Tanh, ops.Logistic, ops.Cos])(value), shape

    def _select(self, value, shape):
        other = self.one_of(self._same(shape))
        return ops.Select(ops.Gt(value, other), value, other), shape

    def _broadcast(self, value, shape):
        sizes = tuple(self.draw.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2)))
        if len(shape) > 2:
            return None
        if self.one_of([True, False]):
            return ops.Broadcast(value, sizes), (*sizes, *shape)
        whole = (*shape, *sizes)
        return ops.BroadcastInDim(value, whole, list(range(len(shape)))), whole

    def _transpose(self, value, shape):
        order = self.draw.draw(st.permutations(range(len(shape))))
        return ops.Transpose(value, order), tuple(shape[axis] for axis in order)

    def _reshape(self, value, shape):
        size = prod(shape)
        first = self.one_of([d for d in range(1, size + 1) if size % d == 0] or [1])
        to = self.one_of([(size,), (first, size // first), (1, size), (size, 1)])
        return ops.Reshape(value, to), to

    def _slice(self, value, shape):
        starts = [self.draw.draw(st.integers(0, size - 1)) for size in shape]
        limits = [self.draw.draw(st.integers(start + 1, size)) for start, size in zip(starts, shape, strict=True)]
        strides = [self.one_of([1, 1, 2, 3]) for _ in shape]
        sizes = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, strides, strict=True))
        return ops.Slice(value, starts, limits, strides), sizes

    def _reverse(self, value, shape):
        axes = [axis for axis in range(len(shape)) if self.one_of([True, False])]
        return ops.Rev(value, axes), shape

    def _pad(self, value, shape):
        from spmd.builder import PaddingConfig, PaddingConfigDimension

        config = [(self.one_of([0, 1, 3]), self.one_of([0, 2]), self.one_of([0, 0, 1])) for _ in shape]
        dims = [PaddingConfigDimension(*entry) for entry in config]
        sizes = tuple(a + b + s + (s - 1) * c for s, (a, b, c) in zip(shape, config, strict=True))
        return ops.Pad(value, ops.ConstantR0(self.b, np.float32(2.5)), PaddingConfig(dims)), sizes

    def _concatenate(self, value, shape):
        if not shape:
            return None
        axis = self.one_of(range(len(shape)))
        count = self.one_of([2, 3])
        parts = [value, *(self.one_of(self._same(shape)) for _ in range(count - 1))]
        return ops.ConcatInDim(self.b, parts, axis), tuple(s * (count if d == axis else 1) for d, s in enumerate(shape))

    def _fold(self, value, shape, op, start, element=F32):
        axes = [axis for axis in range(len(shape)) if self.one_of([True, False])]
        sub = XlaBuilder("region")
        scalar = Shape.array_shape(element, ())
        op(ops.Parameter(sub, 0, scalar, "x"), ops.Parameter(sub, 1, scalar, "y"))
        folded = ops.Reduce(self.b, [value], [ops.ConstantR0(self.b, element.dtype.type(start))], sub.Build(), axes)
        return folded, tuple(size for axis, size in enumerate(shape) if axis not in axes)

    def _truths(self, value, shape):
        """Whether any, or all, of what is computed of some elements is positive."""
        op, start = self.one_of([(ops.And, True), (ops.Or, False)])
        positive = ops.Gt(ops.Tanh(value), ops.Broadcast(ops.ConstantR0(self.b, np.float32(-0.9)), shape))
        folded, kept = self._fold(positive, shape, op, start, PRED)
        return ops.ConvertElementType(folded, F32), kept

    def _counts(self, value, shape):
        """Sums of narrow integers, which wrap."""
        element = self.one_of([U8, S8, S16, S32])
        signs = ops.ConvertElementType(ops.Gt(value, ops.Neg(value)), element)
        many = ops.Mul(signs, ops.Broadcast(ops.ConstantR0(self.b, element.dtype.type(3)), shape))
        folded, kept = self._fold(many, shape, ops.Add, 0, element)
        return ops.ConvertElementType(folded, F32), kept

    def _lookup(self, value, shape):
        """Elements of a matrix whose places are computed of another value, and lie side by side."""
        if len(shape) != 2:
            return None
        other, points = self.one_of(self.values)
        last = len(points)
        places = [
            ops.Reshape(ops.ConvertElementType(ops.Mul(other, ops.Broadcast(c, points)), S32), (*points, 1))
            for c in (ops.ConstantR0(self.b, np.float32(number)) for number in (4, -7))
        ]
        numbers = GatherDimensionNumbers([], [0, 1], [0, 1], last)
        return ops.Gather(value, ops.ConcatInDim(self.b, places, last), numbers, (1, 1)), points

    def _loop(self, value, shape):
        """Three turns of a loop that computes something alike at each, and broadcasts what stands outside, too."""
        state = [Shape.array_shape(S32, ()), Shape.array_shape(F32, shape), Shape.array_shape(F32, shape)]
        whole = Shape.tuple_shape(state)
        condition, body = XlaBuilder("condition"), XlaBuilder("body")
        turn = ops.GetTupleElement(ops.Parameter(condition, 0, whole, "s"), 0)
        ops.Lt(turn, ops.ConstantR0(condition, np.int32(self.one_of([0, 1, 7]))))
        carried = ops.Parameter(body, 0, whole, "s")
        number, same, total = (ops.GetTupleElement(carried, place) for place in range(3))
        alike = ops.Cos(ops.Exp(ops.Neg(ops.Abs(same))))
        half = ops.Broadcast(ops.ConstantR0(body, np.float32(0.5)), shape)
        more = ops.Add(number, ops.ConstantR0(body, np.int32(1)))
        ops.Tuple(body, [more, same, ops.Add(ops.Mul(total, half), alike)])
        first = ops.Tuple(self.b, [ops.ConstantR0(self.b, np.int32(0)), value, self.one_of(self._same(shape))])
        return ops.GetTupleElement(ops.While(condition.Build(), body.Build(), first), 2), shape

    def _reduce(self, value, shape):
        return self._fold(value, shape, ops.Add, 0.0)

    def _maximum(self, value, shape):
        return self._fold(value, shape, ops.Max, -np.inf)

    def _rows(self, value, shape):
        """A softmax of the last dimension."""
        if not shape:
            return None
        scalar, last = Shape.array_shape(F32, ()), len(shape) - 1
        folded = []
        for op, start in ((ops.Max, -np.inf), (ops.Add, 0.0)):
            sub = XlaBuilder("region")
            op(ops.Parameter(sub, 0, scalar, "x"), ops.Parameter(sub, 1, scalar, "y"))
            start = ops.ConstantR0(self.b, np.float32(start))
            if folded:
                value = ops.Exp(ops.Sub(value, ops.BroadcastInDim(folded[0], shape, list(range(last)))))
            folded.append(ops.Reduce(self.b, [value], [start], sub.Build(), [last]))
        return ops.Div(value, ops.BroadcastInDim(folded[1], shape, list(range(last)))), shape

    def _iota(self, value, shape):
        if not shape:
            return None
        counted = ops.Iota(self.b, Shape.array_shape(S32, shape), self.one_of(range(len(shape))))
        return ops.Add(value, ops.ConvertElementType(counted, F32)), shape

    def _row(self, value, shape):
        if not shape:
            return None
        starts = [ops.ConstantR0(self.b, np.int32(self.one_of([-1, 0, 1, 40]))) for _ in shape]
        sizes = tuple(self.one_of([1, size]) for size in shape)
        return ops.DynamicSlice(value, starts, sizes), sizes

    def _update(self, value, shape):
        if not shape:
            return None
        starts = [ops.ConstantR0(self.b, np.int32(self.one_of([0, 1, 40]))) for _ in shape]
        sizes = [self.one_of([1, size]) for size in shape]
        part = ops.Slice(self.one_of(self._same(shape)), [0] * len(shape), sizes, [1] * len(shape))
        return ops.DynamicUpdateSlice(value, part, starts), shape

    def _dot(self, value, shape):
        if len(shape) != 2:
            return None
        other = self.one_of(self._same(shape))
        return ops.Dot(ops.Transpose(value, (1, 0)), other), (shape[1], shape[1])

    def build(self) -> spmd.Module:
        results = [value for value, _ in self.values[len(self.arguments) :]] or [self.values[0][0]]
        chosen = [self.one_of(results) for _ in range(2)] + [results[-1]]
        ops.Tuple(self.b, chosen)
        return self.b.Build().to_stablehlo()


def drawn_program(data: st.DataObject, most: int) -> tuple[spmd.Module, list[np.ndarray]]:
    """A random program of up to `most` steps, and arguments for it."""
    program = DrawnUnits(data)
    program.grow(data.draw(st.integers(1, most)))
    module = program.build()
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    return module, [rng.standard_normal(shape).astype(np.float32) for shape in program.arguments]
