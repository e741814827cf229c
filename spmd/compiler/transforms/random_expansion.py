"""Expansion of the Philox generator into integer ops, which are fused with what uses the bits.

A counter gives four words. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the order of
the output is that of XLA's CPU client (spmd/backends/numpy/random.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Value
from spmd.types import UI32, UI64, ElementType, TensorType

GENERATOR = "stablehlo.rng_bit_generator"
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_ROUNDS, _HALF, _LOW = 10, 32, 0xFFFFFFFF
_SCALAR = TensorType((), UI64)


def expand_generators(block: Block) -> None:
    """Expand the Philox generators of 32 or 64 bits in `block` and its regions; in place."""
    rewrite(block, (GENERATOR,), lambda block: _expanded)


def _expanded(op: Op, builder: OpBuilder) -> Sequence[Value] | None:
    state, output = op.operands[0], op.results[1].tensor
    element = output.element_type
    if op["rng_algorithm"] not in ("PHILOX", "DEFAULT") or not is_plain(state.type) or not is_plain(output):
        return None
    words = state.tensor.static_shape
    if state.tensor.element_type is not UI64 or words not in ((2,), (3,)) or not prod(output.static_shape):
        return None
    if not isinstance(element, ElementType) or not element.is_integer or element.bits not in (32, 64):
        return None
    number = _Philox(builder, state, -(-prod(output.static_shape) * element.bits // 128))
    parts = number.words() if element.bits == 32 else number.pairs()
    flat = TensorType((number.count, len(parts)), UI32 if element.bits == 32 else UI64)
    columns = [builder.convert(part, flat.with_shape((number.count,))) for part in parts]
    # Fused with the interleaving, each column would be computed for each of them.
    columns = list(builder.op("stablehlo.optimization_barrier", columns).results)
    joined = builder.concatenate([builder.reshape(column, (number.count, 1)) for column in columns], 1)
    row = builder.reshape(joined, (prod(flat.static_shape),))
    bits = builder.reshape(builder.slice(row, 0, 0, prod(output.static_shape)), output.static_shape)
    return [number.state(), bits if bits.type is output else builder.one("bitcast_convert", [bits], output)]


class _Philox:
    """Philox-4x32 of `count` counters from those of the state, (key, low half[, high half]) in ui64."""

    def __init__(self, builder: OpBuilder, state: Value, count: int) -> None:
        self.builder, self.count = builder, count
        self.type = TensorType((count,), UI64)
        size = state.tensor.static_shape[0]
        parts = [builder.reshape(builder.slice(state, 0, place, place + 1), ()) for place in range(size)]
        self.key, self.start, *others = parts
        self.high = others[0] if others else self.key
        self.size = size

    def words(self) -> list[Value]:
        """Return the four words of each counter, of 32 bits, in ui64."""
        places = self.builder.one("iota", (), self.type, iota_dimension=0)
        start = self._spread(self.start)
        low = self._binary("add", start, places)
        carry = self.builder.convert(self.builder.compare(low, start, "LT"), self.type)
        high = self._binary("add", self._spread(self.high), carry)
        a, b, c, d = self._low(low), self._upper(low), self._low(high), self._upper(high)
        keys = [self._low(self.key), self._upper(self.key)]
        for number in range(_ROUNDS):
            first, second = (
                self._spread(self._low(self._with(key, "add", number * step)))
                for key, step in zip(keys, _WEYL, strict=True)
            )
            left, right = self._with(a, "multiply", _MULTIPLIERS[0]), self._with(c, "multiply", _MULTIPLIERS[1])
            a = self._binary("xor", self._binary("xor", b, self._upper(right)), first)
            c = self._binary("xor", self._binary("xor", d, self._upper(left)), second)
            b, d = self._low(right), self._low(left)
        return [a, b, c, d]

    def pairs(self) -> list[Value]:
        """Return the words of each counter as two numbers of 64 bits."""
        a, b, c, d = self.words()
        return [self._binary("or", low, self._with(high, "shift_left", _HALF)) for low, high in ((a, b), (c, d))]

    def state(self) -> Value:
        """Return the state after these counters."""
        end = self._with(self.start, "add", self.count)
        carry = self.builder.convert(self.builder.compare(end, self.start, "LT"), _SCALAR)
        parts = [self.key, end, self._binary("add", self.high, carry)][: self.size]
        return self.builder.concatenate([self.builder.reshape(part, (1,)) for part in parts], 0)

    def _binary(self, name: str, left: Value, right: Value) -> Value:
        return self.builder.binary(name, left, right)

    def _with(self, value: Value, name: str, number: int) -> Value:
        return self._binary(name, value, self.builder.splat(number, value.tensor))

    def _low(self, value: Value) -> Value:
        return self._with(value, "and", _LOW)

    def _upper(self, value: Value) -> Value:
        return self._with(value, "shift_right_logical", _HALF)

    def _spread(self, scalar: Value) -> Value:
        return self.builder.broadcast(scalar, self.type.static_shape)
