"""Ops as native loops over arrays, for tests: what spmd.backends.llvm gives, without the schedule."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from spmd import types as t
from spmd.analysis.scalar.elements import decode, encode, memory_types, register_types
from spmd.analysis.scalar.elementwise import compute
from spmd.analysis.scalar.expression import Expression, parameter
from spmd.backends.llvm.emit.math_library import link
from spmd.backends.llvm.emit.scalars import Renderer, render
from spmd.backends.llvm.emit.writer import InstructionBuilder, llvm_type
from spmd.backends.llvm.jit.jit import Library, compile_ir
from spmd.backends.llvm.jit.processor import chosen
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


@dataclass(frozen=True)
class LoopForm:
    """What a loop computes of each element of contiguous arrays, `width` elements at a time."""

    expressions: Sequence[Expression]
    operands: Sequence[AnyElement]
    results: Sequence[AnyElement]
    width: int


class NativeLoop:
    """`void function(operand pointers..., result pointers..., n)`, the function `name` of `library`, for n elements; n
    is a multiple of the width."""

    def __init__(self, form: LoopForm, library: Library, name: str) -> None:
        self._form = form
        self._library = library  # is unloaded with its last reference
        count = len(form.operands) + len(form.results)
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count, ctypes.c_int64)(library.address(name))

    def __call__(self, *arrays: Array) -> list[Array]:
        """The results for vectors of any one length."""
        size = arrays[0].size
        whole = -(-size // self._form.width) * self._form.width
        operands = [np.resize(array, whole) for array in arrays]
        outputs = [np.zeros(whole, element.dtype) for element in self._form.results]
        self._function(*(array.ctypes.data for array in (*operands, *outputs)), whole)
        return [output[:size] for output in outputs]


def native_loops(forms: Sequence[LoopForm]) -> list[NativeLoop]:
    """A loop of each form, all compiled as one module: to begin with a module takes longer than a short loop does."""
    functions, callees = [], {}
    for index, form in enumerate(forms):
        writer = InstructionBuilder()
        functions.append(_function_text(writer, form, f"loop{index}"))
        callees.update(writer.callees)
    linked = link(callees.values(), chosen())
    text = "\n".join([*(callee.declaration for callee in callees.values()), *functions])
    library = compile_ir(text, linked.symbols, uses=linked.libraries)
    return [NativeLoop(form, library, f"loop{index}") for index, form in enumerate(forms)]


def _function_text(writer: InstructionBuilder, form: LoopForm, name: str) -> str:
    writer.label("entry")
    writer.do("br label %head")
    writer.label("head")
    writer.do("%i = phi i64 [0, %entry], [%next, %body]")
    writer.do("%more = icmp ult i64 %i, %n")
    writer.do("br i1 %more, label %body, label %exit")
    writer.label("body")
    values: list[str] = []
    for index, element in enumerate(form.operands):
        types = memory_types(element)
        codes = _read(writer, element, f"%p{index}", form.width)
        decoded = decode(tuple(parameter(at, type) for at, type in enumerate(types)), element)
        values += render(writer, decoded, codes, form.width)
    outputs = Renderer(writer, form.width, values).render(form.expressions)
    for index, element in enumerate(form.results, len(form.operands)):
        types = register_types(element)
        encoded = encode(tuple(parameter(at, type) for at, type in enumerate(types)), element)
        _write(writer, element, render(writer, encoded, outputs[: len(types)], form.width), f"%p{index}", form.width)
        outputs = outputs[len(types) :]
    writer.do(f"%next = add i64 %i, {form.width}")
    writer.do("br label %head")
    writer.label("exit")
    writer.do("ret void")
    parameters = ", ".join(f"ptr %p{index}" for index in range(len(form.operands) + len(form.results)))
    body = "\n".join(writer.lines)
    return f"define void @{name}({parameters}, i64 %n) {{\n{body}\n}}\n"


def _address(writer: InstructionBuilder, element: AnyElement, base: str, part: int = 0) -> str:
    """Where part `part` of the memory form of element %i lies."""
    size = element.dtype.itemsize
    offset = writer.emit(f"mul i64 %i, {size}")
    offset = writer.emit(f"add i64 {offset}, {part * size // 2}")
    return writer.emit(f"getelementptr i8, ptr {base}, i64 {offset}")


def _read(writer: InstructionBuilder, element: AnyElement, base: str, width: int) -> list[str]:
    """The parts of the memory form of the elements from %i on."""
    types = memory_types(element)
    if width == 1:
        parts = enumerate(types)
        return [
            writer.emit(f"load {llvm_type(type)}, ptr {_address(writer, element, base, part)}, align 1")
            for part, type in parts
        ]
    vector = llvm_type(types[0], width * len(types))
    row = writer.emit(f"load {vector}, ptr {_address(writer, element, base)}, align 1")
    if len(types) == 1:
        return [row]
    return [_shuffle(writer, vector, row, row, range(part, 2 * width, 2)) for part in range(2)]


def _write(writer: InstructionBuilder, element: AnyElement, codes: Sequence[str], base: str, width: int) -> None:
    types = memory_types(element)
    if width == 1:
        for part, (code, type) in enumerate(zip(codes, types, strict=True)):
            place = _address(writer, element, base, part)
            writer.do(f"store {llvm_type(type)} {code}, ptr {place}, align 1")
        return
    row = codes[0]
    if len(types) == 2:
        turns = [part * width + lane for lane in range(width) for part in range(2)]
        row = _shuffle(writer, llvm_type(types[0], width), *codes, turns)
    vector = llvm_type(types[0], width * len(types))
    writer.do(f"store {vector} {row}, ptr {_address(writer, element, base)}, align 1")


def _shuffle(writer: InstructionBuilder, vector: str, left: str, right: str, lanes: Iterable[int]) -> str:
    chosen = [f"i32 {lane}" for lane in lanes]
    return writer.emit(f"shufflevector {vector} {left}, {vector} {right}, <{len(chosen)} x i32> <{', '.join(chosen)}>")


def op_form(op: Op, width: int) -> LoopForm:
    """The loop of an op on contiguous arrays."""
    form = scalar_form(op)
    assert form is not None, op
    operands = [operand.tensor.element_type for operand in op.operands]
    return LoopForm(form, operands, [result.tensor.element_type for result in op.results], width)


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
