"""Ops as native loops over arrays, for tests: what spmd.backends.llvm gives, without the schedule."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from spmd import types as t
from spmd.analysis.scalar.elements import decode, encode, memory_types, register_types
from spmd.analysis.scalar.elementwise import compute
from spmd.analysis.scalar.expression import Expression, parameter
from spmd.backends.llvm.emit.math_library import link
from spmd.backends.llvm.emit.scalars import Renderer, render
from spmd.backends.llvm.emit.writer import Writer, llvm_type
from spmd.backends.llvm.jit.jit import Library, compile_ir
from spmd.dialects.core import OPS
from spmd.ir import Op, Value
from spmd.support.arrays import Array
from spmd.types import ElementType, QuantizedType, TensorType

AnyElement = ElementType | QuantizedType
#: Elements of the operands of ops that are checked.
SIZE = 400


def make_op(name: str, operands: Sequence[AnyElement], result: AnyElement, **attributes: object) -> Op:
    """An op on vectors of `SIZE` elements."""
    values = [Value(TensorType((SIZE,), element)) for element in operands]
    return Op(name, values, [TensorType((SIZE,), result)], dict(attributes), definition=OPS[name])


def scalar_form(op: Op) -> list[Expression] | None:
    """The registers of the op's results, of parameters that are the registers of its operands; None without a form."""
    elements, index = [], 0
    for operand in op.operands:
        types = register_types(operand.tensor.element_type)
        elements.append(tuple(parameter(index + at, type) for at, type in enumerate(types)))
        index += len(types)
    results = compute(op, elements)
    return None if results is None else [value for element in results for value in element]


class NativeLoop:
    """`void loop(operand pointers..., result pointers..., n)` at `width` lanes, what is left over masked off.

    `strides` are elements from one lane to the next, one for each operand and result.
    """

    def __init__(
        self,
        expressions: Sequence[Expression],
        operands: Sequence[AnyElement],
        results: Sequence[AnyElement],
        width: int,
        strides: Sequence[int] | None = None,
    ) -> None:
        self.results = tuple(results)
        self.strides = tuple(strides or [1] * (len(operands) + len(results)))
        self.text, callees = _text(expressions, operands, results, width, self.strides)
        linked = link(callees)
        self.library: Library = compile_ir(self.text, linked.symbols, uses=linked.libraries)
        count = len(operands) + len(results)
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count, ctypes.c_int64)(
            self.library.address("loop")
        )

    def __call__(self, *arrays: Array, size: int | None = None) -> list[Array]:
        """Results of `size` points, each in an array of the strides' length with zeros between."""
        n = arrays[0].size if size is None else size
        outputs = [
            np.zeros(max(1, n * stride), element.dtype)
            for element, stride in zip(self.results, self.strides[len(arrays) :], strict=True)
        ]
        self._function(*(array.ctypes.data for array in (*arrays, *outputs)), n)
        return [out[: n * stride] for out, stride in zip(outputs, self.strides[len(arrays) :], strict=True)]


def _text(
    expressions: Sequence[Expression],
    operands: Sequence[AnyElement],
    results: Sequence[AnyElement],
    width: int,
    strides: Sequence[int],
) -> tuple[str, Any]:
    writer = Writer()
    elements = [*operands, *results]
    writer.label("entry")
    writer.do("br label %head")
    writer.label("head")
    writer.do("%i = phi i64 [0, %entry], [%next, %body]")
    writer.do("%more = icmp ult i64 %i, %n")
    writer.do("br i1 %more, label %body, label %exit")
    writer.label("body")
    rest = writer.emit("sub i64 %n, %i")
    limit = _splat(writer, f"i64 {rest}", "i64", width)
    steps = f"<{', '.join(f'i64 {lane}' for lane in range(width))}>" if width > 1 else "0"
    mask = writer.emit(f"icmp ult {llvm_type('i64', width)} {steps}, {limit}")
    values: list[str] = []
    for index, (element, stride) in enumerate(zip(operands, strides, strict=False)):
        types = memory_types(element)
        codes = [_read(writer, element, part, f"%p{index}", stride, width, mask) for part in range(len(types))]
        decoded = decode(tuple(parameter(at, type) for at, type in enumerate(types)), element)
        values += render(writer, decoded, codes, width)
    outputs = Renderer(writer, width, values).render(expressions)
    for index, (element, stride) in enumerate(zip(elements, strides, strict=True)):
        if index < len(operands):
            continue
        types = register_types(element)
        encoded = encode(tuple(parameter(at, type) for at, type in enumerate(types)), element)
        for part, code in enumerate(render(writer, encoded, outputs[: len(types)], width)):
            _write(writer, element, part, code, f"%p{index}", stride, width, mask)
        outputs = outputs[len(types) :]
    writer.do(f"%next = add i64 %i, {width}")
    writer.do("br label %head")
    writer.label("exit")
    writer.do("ret void")
    parameters = ", ".join(f"ptr %p{index}" for index in range(len(elements)))
    body = "\n".join(writer.lines)
    declarations = "\n".join(writer.declarations)
    return f"{declarations}\ndefine void @loop({parameters}, i64 %n) {{\n{body}\n}}\n", writer.callees.values()


def _splat(writer: Writer, typed: str, type: str, width: int) -> str:
    if width == 1:
        return typed.split()[1]
    vector = llvm_type(type, width)
    first = writer.emit(f"insertelement {vector} poison, {typed}, i64 0")
    return writer.emit(f"shufflevector {vector} {first}, {vector} poison, <{width} x i32> zeroinitializer")


def _pointers(writer: Writer, element: AnyElement, part: int, base: str, stride: int, width: int) -> str:
    size = element.dtype.itemsize
    offset = writer.emit(f"mul i64 %i, {stride * size}")
    start = writer.emit(f"getelementptr i8, ptr {base}, i64 {offset}")
    steps = ", ".join(f"i64 {lane * stride * size + part * size // 2}" for lane in range(width))
    steps = f"<{width} x i64> <{steps}>"
    return writer.emit(f"getelementptr i8, ptr {start}, {steps}")


def _read(writer: Writer, element: AnyElement, part: int, base: str, stride: int, width: int, mask: str) -> str:
    """A part of the memory form of a lane's element, by gathering; lanes that are masked off are not read."""
    type = memory_types(element)[part]
    vector, places = f"<{width} x {llvm_type(type)}>", _pointers(writer, element, part, base, stride, width)
    name = f"@llvm.masked.gather.v{width}{type.value}.v{width}p0"
    lanes = _vector_mask(writer, width, mask)
    value = writer.emit(f"call {vector} {name}(<{width} x ptr> align 1 {places}, {lanes}, {vector} zeroinitializer)")
    return value if width > 1 else writer.emit(f"extractelement {vector} {value}, i64 0")


def _write(
    writer: Writer, element: AnyElement, part: int, value: str, base: str, stride: int, width: int, mask: str
) -> None:
    type = memory_types(element)[part]
    vector, places = f"<{width} x {llvm_type(type)}>", _pointers(writer, element, part, base, stride, width)
    if width == 1:
        value = writer.emit(f"insertelement {vector} poison, {llvm_type(type)} {value}, i64 0")
    name = f"@llvm.masked.scatter.v{width}{type.value}.v{width}p0"
    lanes = _vector_mask(writer, width, mask)
    writer.do(f"call void {name}({vector} {value}, <{width} x ptr> align 1 {places}, {lanes})")


def _vector_mask(writer: Writer, width: int, mask: str) -> str:
    if width == 1:
        mask = writer.emit(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
    return f"<{width} x i1> {mask}"


def op_loop(op: Op, width: int) -> NativeLoop:
    """The loop of an op on contiguous arrays."""
    form = scalar_form(op)
    assert form is not None, op
    return NativeLoop(
        form,
        [operand.tensor.element_type for operand in op.operands],
        [result.tensor.element_type for result in op.results],
        width,
    )


def values_of(element: AnyElement, rng: np.random.Generator, size: int = SIZE) -> Array:
    """The ends of the type, small numbers and whole ones, and numbers from all over the range."""
    if isinstance(element, QuantizedType):
        return values_of(element.storage, rng, size)
    if element.is_complex:
        array = np.empty(size, element.dtype)
        array.real, array.imag = values_of(element.real, rng, size), values_of(element.real, rng, size)
        return array
    if element.is_boolean:
        return rng.integers(0, 2, size).astype(np.bool_)
    if element.bits <= 8:
        codes = rng.integers(0, 2**element.bits, size).astype(np.uint8)
        return codes.view(element.dtype)
    bits = np.dtype(f"u{element.dtype.itemsize}")
    anywhere = rng.integers(0, np.iinfo(bits).max, size, dtype=bits, endpoint=True).view(element.dtype)
    if element.is_integer:
        low, high = t.storage_range(element)
        ends = np.array([low, low + 1, high, high - 1, 0, 1, 2, max(-1, low), max(-2, low)], object)
        small = rng.integers(max(-70, low), 70, size).astype(element.dtype)
        return _mixed(rng, [anywhere, small, rng.choice(ends, size).astype(element.dtype)])
    info = ml_dtypes.finfo(element.dtype)
    ends = [info.max, info.tiny, info.smallest_subnormal, info.eps, 1.0, 0.0, 2.5, 0.5, 1.5, np.inf, np.nan]
    special = rng.choice(np.array([float(end) for end in ends]).astype(element.dtype), size)
    usual = (rng.standard_normal(size) * 10).astype(element.dtype)
    whole = np.rint(usual.astype(np.float64)).astype(element.dtype)
    return _mixed(rng, [anywhere, special, -special, usual, whole])


def _mixed(rng: np.random.Generator, choices: Sequence[Array]) -> Array:
    size = choices[0].size
    return np.asarray(np.stack(choices)[rng.integers(0, len(choices), size), np.arange(size)])


def same(left: Array, right: Array) -> Array:
    """Where two arrays of one dtype hold the same bits; all NaNs are alike."""
    if left.dtype.kind == "c":
        return np.asarray(same(left.real.copy(), right.real.copy()) & same(left.imag.copy(), right.imag.copy()))
    view = np.dtype(f"u{left.dtype.itemsize}")
    equal = left.view(view) == right.view(view)
    if left.dtype.kind in "iub":
        return np.asarray(equal)
    return np.asarray(equal | ((left != left) & (right != right)))
