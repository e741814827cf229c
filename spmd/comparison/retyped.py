"""Programs in other numbers: in wider floats, or in the integers modulo a prime.

Modulo a prime, sums, products and quotients are exact: programs that differ only in the order or distribution of sums
have equal results. Operations that a ring lacks (exp, comparisons, maxima) are replaced by fixed functions of residues,
the same in both programs. Source: Schwartz, "Fast probabilistic algorithms for verification of polynomial identities"
(1980).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from zlib import crc32

import numpy as np

from spmd.analysis.reducers import monoid_of
from spmd.comparison.formats import as_wide, is_inexact
from spmd.dialects.core import Trait, has_trait
from spmd.dialects.make import make_op, make_reducer
from spmd.errors import CompileError, Diagnostic
from spmd.ir import AttributeValue, Block, Op, Region, Value
from spmd.ir.attributes import DenseAttr
from spmd.support.arrays import Array
from spmd.types import COMPLEX128, F64, UI64, ElementType, TensorType, Type

#: Two primes below 2^31: products of residues fit into 64 bits, and sums of products of halves into 53.
PRIMES = (2_147_483_647, 2_147_483_629)
_HALF = 1 << 16
#: Ops that are applied to residues in the residues' own order.
_ORDERED = frozenset(f"stablehlo.{name}" for name in ("maximum", "minimum", "clamp", "compare", "select", "sort"))


def is_float(type: Type) -> bool:
    """Return whether `type` is a tensor of real floats."""
    return isinstance(type, TensorType) and isinstance(type.element_type, ElementType) and type.element_type.is_float


@dataclass
class Rewriter:
    """Rewrites a block with `element` in place of floats."""

    element: ElementType = F64

    def type(self, type: Type) -> Type:
        return TensorType(type.shape, self.element) if isinstance(type, TensorType) and is_float(type) else type

    def block(self, block: Block, values: dict[Value, Value]) -> Block:
        copy = Block(self.type(argument.type) for argument in block.arguments)
        values.update(zip(block.arguments, copy.arguments, strict=True))
        for op in block.ops:
            results = self.op(op, [values.get(operand, operand) for operand in op.operands], values, copy)
            values.update(zip(op.results, results, strict=True))
        return copy

    def op(self, op: Op, operands: Sequence[Value], values: dict[Value, Value], out: Block) -> Sequence[Value]:
        """Return the replacements of the results of `op`, whose ops are appended to `out`."""
        if op.name == "stablehlo.bitcast_convert" and (is_float(op.operands[0].type) or is_float(op.results[0].type)):
            raise _no_meaning(op)
        if op.name == "stablehlo.constant" and is_float(op.results[0].type):
            return self.emit(out, op, (), {"value": self.constant(op)})
        return self.emit(out, op, operands, {}, [self.region(each, values) for each in op.regions])

    def region(self, region: Region, values: dict[Value, Value]) -> Region:
        return Region(self.block(block, values) for block in region.blocks)

    def constant(self, op: Op) -> DenseAttr:
        array = op["value"].array if isinstance(op["value"], DenseAttr) else None
        if array is None:
            raise _no_meaning(op)
        type = self.type(op.results[0].type)
        assert isinstance(type, TensorType)
        splat = array.size > 0 and all(stride == 0 for stride in array.strides)
        element = self.numbers(array.reshape(-1)[:1] if splat else array)
        return DenseAttr(np.broadcast_to(element.reshape(()), array.shape) if splat else element, type)

    def numbers(self, array: Array) -> Array:
        """Return the replacements of the elements of `array`, floats of the program."""
        return array.astype(np.float64)

    def emit(
        self,
        out: Block,
        op: Op,
        operands: Sequence[Value],
        attributes: dict[str, AttributeValue],
        regions: Sequence[Region] = (),
    ) -> Sequence[Value]:
        kept = {name: value for name, value in op.attributes.items() if name not in OF_FLOATS}
        types = [self.type(result.type) for result in op.results]
        made = op.clone(operands, types, regions, {**kept, **attributes})
        out.ops.append(made)
        return made.results


#: Attributes that specify how floats are computed.
OF_FLOATS = frozenset(("precision_config", "algorithm", "compare_type", "result_accuracy"))


@dataclass
class Wide(Rewriter):
    """Replaces all floats by float64 and all complex types by complex128."""

    def type(self, type: Type) -> Type:
        if isinstance(type, TensorType) and is_inexact(type) and not is_float(type):
            return TensorType(type.shape, COMPLEX128)
        return super().type(type)

    def op(self, op: Op, operands: Sequence[Value], values: dict[Value, Value], out: Block) -> Sequence[Value]:
        if op.name == "stablehlo.constant" and is_inexact(op.results[0].type):
            return self.emit(out, op, (), {"value": self.constant(op)})
        target = wide_target(op)
        if target is not None:
            return self.emit(out, op, operands, {"call_target_name": target})
        return super().op(op, operands, values, out)

    def numbers(self, array: Array) -> Array:
        return as_wide(array)


def wide_target(op: Op) -> str | None:
    """Return LAPACK's 64-bit target that corresponds to a custom call of LAPACK; None for other ops."""
    match = (
        re.fullmatch(r"lapack_([sdcz])(\w+_ffi)", op["call_target_name"]) if op.name.endswith("custom_call") else None
    )
    return None if match is None else f"lapack_{'d' if match[1] in 'sd' else 'z'}{match[2]}"


@dataclass
class Residues(Rewriter):
    """Replaces floats by residues modulo `prime`; `salt` varies the replacements of functions and inputs."""

    element: ElementType = UI64
    prime: int = PRIMES[0]
    salt: int = 0

    def numbers(self, array: Array) -> Array:
        distinct, places = np.unique(array.astype(np.float64).reshape(-1), return_inverse=True)
        residues = np.array([self._residue(float(each)) for each in distinct], np.uint64)
        return residues[places].reshape(array.shape)

    def points(self, array: Array) -> Array:
        """Return a pseudorandom residue for each element: equal floats have the same one, and zero is zero."""
        bits = array.astype(np.float64).view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15 + 2 * self.salt)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.where(array == 0, 0, (mixed >> np.uint64(3)) % np.uint64(self.prime)).astype(np.uint64)

    def _residue(self, value: float) -> int:
        if not np.isfinite(value):
            return 0 if value < 0 else self.prime - 1
        exact = Fraction(value)
        return exact.numerator * pow(exact.denominator, -1, self.prime) % self.prime

    def op(self, op: Op, operands: Sequence[Value], values: dict[Value, Value], out: Block) -> Sequence[Value]:
        if not any(is_float(value.type) for value in (*op.operands, *op.results)):
            return super().op(op, operands, values, out)
        writer = _Writer(out, op, self)
        rule = _RULES.get(op.name)
        if rule is not None:
            return [rule(writer, operands)]
        if op.regions and monoid_of(op.regions[0]) is not None:
            return self._folded(op, operands, out, writer)
        if has_trait(op, Trait.ELEMENTWISE) and op.name not in _ORDERED:
            return [writer.function(operands)]
        if op.name == "stablehlo.convolution" or op.name.endswith("custom_call"):
            raise _no_meaning(op)
        return super().op(op, operands, values, out)

    def _folded(self, op: Op, operands: Sequence[Value], out: Block, writer: _Writer) -> Sequence[Value]:
        """Return the results of a fold: sums stay below 2^64, and are reduced once."""
        monoid = monoid_of(op.regions[0])
        assert monoid is not None
        if monoid.kind == "multiply":
            raise _no_meaning(op)
        region = make_reducer(monoid.op, TensorType((), self.element))
        results = self.emit(out, op, operands, {}, [region])
        return [writer.reduced(result) for result in results] if monoid.kind == "add" else results


@dataclass
class _Writer:
    """Appends ops to `out` in place of `op`."""

    out: Block
    op: Op
    field: Residues

    def __call__(self, name: str, *operands: Value, type: Type | None = None) -> Value:
        made = make_op(f"stablehlo.{name}", operands, [type or operands[0].type], location=self.op.location)
        self.out.ops.append(made)
        return made.results[0]

    def number(self, value: int, like: Value) -> Value:
        type = like.tensor
        array = np.broadcast_to(np.array(value, np.uint64), type.static_shape)
        made = make_op("stablehlo.constant", (), [type], {"value": DenseAttr(array, type)}, location=self.op.location)
        self.out.ops.append(made)
        return made.results[0]

    def reduced(self, value: Value) -> Value:
        return self("remainder", value, self.number(self.field.prime, value))

    def times(self, x: Value, y: Value) -> Value:
        return self.reduced(self("multiply", x, y))

    def negated(self, x: Value) -> Value:
        return self.reduced(self("subtract", self.number(self.field.prime, x), x))

    def plus(self, x: Value, y: Value) -> Value:
        return self.reduced(self("add", x, y))

    def inverse(self, x: Value) -> Value:
        """Return x to the power prime - 2. Source: Fermat's little theorem."""
        result, power, exponent = self.number(1, x), x, self.field.prime - 2
        while exponent:
            if exponent & 1:
                result = self.times(result, power)
            exponent >>= 1
            power = self.times(power, power) if exponent else power
        return result

    def function(self, operands: Sequence[Value]) -> Value:
        """Return a fixed function of the operands, chosen by the op's name, for one that a ring lacks."""
        type = self.field.type(self.op.results[0].type)
        salt = crc32(self.op.name.encode()) ^ self.field.salt
        mixed: Value | None = None
        for at, operand in enumerate(operands):
            x = operand if operand.type == type else self("convert", operand, type=type)
            x = self.reduced(x)
            shifted = self("shift_right_logical", x, self.number(7, x))
            odd = self("xor", self("multiply", x, self.number((salt + 2 * at) % 65521 * 2 + 1, x)), shifted)
            mixed = self.reduced(odd) if mixed is None else self.plus(self.times(mixed, mixed), self.reduced(odd))
        assert mixed is not None
        return mixed

    def dot(self, operands: Sequence[Value]) -> Value:
        """Return products by 16-bit halves in 64-bit floats, which are exact for up to 2^20 terms."""
        halves = [self._halves(operand) for operand in operands]
        terms = [self._product(halves[0][i], halves[1][j]) for i, j in ((1, 1), (1, 0), (0, 1), (0, 0))]
        high, middle, low = terms[0], self.plus(terms[1], terms[2]), terms[3]
        middle = self.plus(self.times(high, self.number(_HALF, high)), middle)
        return self.plus(self.times(middle, self.number(_HALF, middle)), low)

    def _halves(self, value: Value) -> tuple[Value, Value]:
        low = self("and", value, self.number(_HALF - 1, value))
        high = self("shift_right_logical", value, self.number(16, value))
        wide = TensorType(value.tensor.shape, F64)
        return self("convert", low, type=wide), self("convert", high, type=wide)

    def _product(self, x: Value, y: Value) -> Value:
        shape = self.op.results[0].tensor.shape
        kept = {name: value for name, value in self.op.attributes.items() if name not in OF_FLOATS}
        made = make_op(self.op.name, (x, y), [TensorType(shape, F64)], kept, location=self.op.location)
        self.out.ops.append(made)
        return self.reduced(self("convert", made.results[0], type=TensorType(shape, UI64)))

    def converted(self, operands: Sequence[Value]) -> Value:
        (x,) = operands
        given, wanted = self.op.operands[0].tensor.element_type, self.op.results[0].type
        if is_float(self.op.operands[0].type):
            return x if is_float(wanted) else self("convert", x, type=wanted)
        signed = isinstance(given, ElementType) and given.is_integer and not given.name.startswith("ui")
        wide = TensorType(x.tensor.shape, UI64)
        if not signed:
            return self.reduced(self("convert", x, type=wide))
        bits = self("convert", x, type=wide)  # for negative numbers, the two's complement
        negative = self("shift_right_logical", bits, self.number(63, bits))
        magnitude = self("multiply", self("xor", bits, self("subtract", self.number(0, bits), negative)), negative)
        below = self.negated(self.plus(self.reduced(magnitude), negative))
        above = self.reduced(self("multiply", bits, self("subtract", self.number(1, bits), negative)))
        return self.plus(above, self.times(below, negative))


def _quotient(write: _Writer, operands: Sequence[Value]) -> Value:
    return write.times(operands[0], write.inverse(operands[1]))


_RULES: dict[str, Callable[[_Writer, Sequence[Value]], Value]] = {
    "stablehlo.add": lambda write, x: write.plus(*x),
    "stablehlo.subtract": lambda write, x: write.plus(x[0], write.negated(x[1])),
    "stablehlo.multiply": lambda write, x: write.times(*x),
    "stablehlo.negate": lambda write, x: write.negated(x[0]),
    "stablehlo.divide": _quotient,
    "stablehlo.dot_general": _Writer.dot,
    "stablehlo.convert": _Writer.converted,
}


def _no_meaning(op: Op) -> CompileError:
    return CompileError(Diagnostic(op.location, "--exact has no numbers for what this op computes of floats", op.name))
