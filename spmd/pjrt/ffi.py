"""Custom calls of handlers that users register with the frontend: jax.ffi.register_ffi_target, the typed interface.

A handler is a function of C that takes a call frame: where the operands and the results are, and the attributes, sorted
by name. Source: openxla/xla, xla/ffi/api/c_api.h. Untyped functions, `void target(void* out, void** in)`, are those of
spmd.register_custom_call.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any

import numpy as np

from spmd.backends.custom_calls import forget_custom_call, register_custom_call
from spmd.backends.kernels import TARGETS, load_kernels
from spmd.ir import Module, Op
from spmd.ir import attributes as a
from spmd.pjrt.errors import Code, PjrtError, unimplemented
from spmd.pjrt.ffi_functions import Context, Future, put, table, take
from spmd.pjrt.layouts import Order, as_laid, copied_in, in_memory, laid
from spmd.pjrt.structs import struct
from spmd.support.arrays import Array, DType, Results
from spmd.types import ElementType, TensorType
from spmd.types.element import ELEMENT_TYPES

#: The handlers of stages, or the one function of an untyped target, by the names of targets: addresses.
Handlers = Mapping[str, int] | int

_STAGES = ("instantiate", "prepare", "initialize", "execute")
_NUMBERS = {
    "i1": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "ui8": 6, "ui16": 7, "ui32": 8, "ui64": 9, "f16": 10, "f32": 11,
    "f64": 12, "complex<f32>": 15, "bf16": 16, "complex<f64>": 18, "f8E5M2": 19, "f8E4M3FN": 20, "i4": 21, "ui4": 22,
    "f8E4M3B11FNUZ": 23, "f8E5M2FNUZ": 24, "f8E4M3FNUZ": 25, "i2": 26, "ui2": 27, "f8E4M3": 28, "f8E3M4": 29,
    "f4E2M1FN": 32, "f8E8M0FNU": 33,
}  # fmt: skip
_BY_DTYPE = {ELEMENT_TYPES[name].dtype: number for name, number in _NUMBERS.items() if name in ELEMENT_TYPES}
_TOKEN = 17
_ARRAY, _DICTIONARY, _SCALAR, _STRING = 1, 2, 3, 4
_BUFFER = 1
_Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


#: The frontend's handlers by the names of their targets; it sets this.
registered: Callable[[], Mapping[str, Handlers]] = dict


#: How many programs there are with a call, by its name.
_programs: Counter[str] = Counter()
_counting = RLock()


def connect(module: Module) -> list[Call]:
    """Have the custom calls of `module` whose targets the frontend has handlers of call these.

    Targets that spmd has itself are its own. Returns the typed calls, to be given to `disconnect` with the program.
    """
    all_calls = [op for op in module.walk() if op.name == "stablehlo.custom_call"]
    if not all_calls:
        return []
    load_kernels()
    for op in all_calls:
        if op["call_target_name"].startswith("lapack_") and not op.operands and not op.results:
            op.attributes = {**op.attributes, "call_target_name": _without_matrix(op["call_target_name"])}
    calls = [op for op in all_calls if op["call_target_name"] not in TARGETS]
    handlers = registered() if calls else {}
    typed: list[Call] = []
    for op in calls:
        found = handlers.get(op["call_target_name"])
        if isinstance(found, int):
            register_custom_call(op["call_target_name"], ctypes.CFUNCTYPE(None)(found))
        elif found is not None:
            call = Call(op, found)
            with _counting:
                _programs[call.name] += 1
                register_custom_call(call.name, call)
            op.attributes = {**op.attributes, "call_target_name": call.name}
            typed.append(call)
    return typed


def _without_matrix(target: str) -> str:
    """The target of a call of LAPACK that has no matrix: it is compiled, and fails once it is run, as XLA's does."""

    def call(*, attributes: Any) -> Results:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{target} is called without a matrix")

    name = f"{target}/without_matrix"
    register_custom_call(name, call)
    return name


def disconnect(calls: Sequence[Call]) -> None:
    """Forget the calls of a program that is gone."""
    for call in calls:
        take(call.context)
        with _counting:
            _programs[call.name] -= 1
            if not _programs[call.name]:
                del _programs[call.name]
                forget_custom_call(call.name)


class Call:
    """A typed custom call: its handlers, attributes, layouts and aliases; called with arrays, it returns arrays."""

    def __init__(self, op: Op, handlers: Mapping[str, int]) -> None:
        self._target = op["call_target_name"]
        config = op.discardable.get("mhlo.backend_config") or op["backend_config"]
        self._frame = Frame()
        self._attributes = self._frame.attributes(config.entries if isinstance(config, a.DictAttr) else {})
        self._types = op.result_types
        self._operand_orders = _orders(op["operand_layouts"], len(op.operands))
        self._result_orders = _orders(op["result_layouts"], len(op.results))
        self._aliases = {
            (alias.output_tuple_indices or (0,))[0]: alias.operand_index for alias in op["output_operand_aliases"] or ()
        }
        self._handlers = {stage: _Handler(handlers[stage]) for stage in _STAGES if handlers.get(stage)}
        self.context = put(Context())
        self._begins = "instantiate" in self._handlers
        #: The same for the same call in every process: compiled code is kept by it.
        self.name = f"{self._target}/{hashlib.sha256(str(op).encode()).hexdigest()[:16]}"

    def __call__(self, *arrays: Array | None, attributes: Any) -> Results:
        frame = Frame()
        given = [
            None if array is None else laid(array, order)
            for array, order in zip(arrays, self._operand_orders, strict=True)
        ]
        results = [self._result(index, given) for index in range(len(self._types))]
        for index, operand in self._aliases.items():
            given[operand] = results[index]
        operands = [frame.buffer(array, order) for array, order in zip(given, self._operand_orders, strict=True)]
        outputs = [frame.buffer(array, order) for array, order in zip(results, self._result_orders, strict=True)]
        if self._begins:
            self._begins = False
            self._run(0, frame, [], [])
        for stage, name in enumerate(_STAGES[1:], 1):
            if name in self._handlers:
                self._run(stage, frame, operands, outputs)
        return tuple([None if array is None else laid(array, None) for array in results])

    def _result(self, index: int, given: Sequence[Array | None]) -> Array | None:
        """Memory for a result: that of the operand that it is an alias of holds its values."""
        type, order = self._types[index], self._result_orders[index]
        if not isinstance(type, TensorType):
            return None
        if index in self._aliases:
            operand = given[self._aliases[index]]
            return None if operand is None else copied_in(operand, order)
        return as_laid(np.empty(in_memory(type.static_shape, order), type.dtype), order)

    def _run(self, stage: int, frame: Frame, operands: Sequence[int], outputs: Sequence[int]) -> None:
        handler = self._handlers[_STAGES[stage]]
        call = struct("FfiCallFrame")()
        call.struct_size, call.api, call.ctx, call.stage = _FRAME, table(), self.context, stage
        call.args_struct_size = call.rets_struct_size = call.attrs_struct_size = _PART
        for (count, kinds, places), buffers in ((_ARGS, operands), (_RETS, outputs)):
            setattr(call, count, len(buffers))
            setattr(call, kinds, frame.array(ctypes.c_int32, [_BUFFER] * len(buffers)))
            setattr(call, places, frame.array(ctypes.c_size_t, buffers))
        attributes = struct("FfiAttrs").from_address(self._attributes)
        call.num_attrs, call.attr_types = attributes.size, attributes.types
        call.attr_names, call.attrs = attributes.names, attributes.attrs
        error = take(handler(ctypes.addressof(call)) or 0)
        if error is None and call.future:
            future: Future = take(call.future)
            future.done.wait()
            error = future.error
        if error is not None:
            raise PjrtError(error.code, f"{self._target}: {error}")


#: The bytes of a call frame up to its attributes, which is what handlers compare, and those of a part of it.
_FRAME = ctypes.sizeof(struct("FfiCallFrame")) - 8
_PART = ctypes.sizeof(struct("FfiAttrs"))
_ARGS = ("num_args", "arg_types", "args")
_RETS = ("num_rets", "ret_types", "rets")


def _orders(layouts: Sequence[Any] | None, count: int) -> list[Order]:
    """The orders of operands or results from their layouts, which have the dimensions from the fastest on."""
    if layouts is None:
        return [None] * count
    orders = [tuple(int(dimension) for dimension in np.ravel(layout))[::-1] for layout in layouts]
    return [None if order == tuple(range(len(order))) else order for order in orders]


class Frame:
    """Memory that a handler reads while it is called: buffers and attributes as it takes them."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def keep(self, memory: Any) -> int:
        """Return the address of `memory` of ctypes."""
        self._kept.append(memory)
        return ctypes.addressof(memory)

    def array(self, kind: Any, values: Sequence[int]) -> int:
        """Return the address of an array of numbers."""
        return self.keep((kind * max(len(values), 1))(*values))

    def buffer(self, array: Array | None, order: Order) -> int:
        """Return the address of the buffer that is `array`, in an order; of a token where it is None."""
        buffer = struct("FfiBuffer")()
        buffer.struct_size, buffer.dtype = ctypes.sizeof(buffer), _TOKEN
        if array is not None:
            self._kept.append(array)
            buffer.dtype, buffer.data, buffer.rank = _number(array.dtype), array.ctypes.data, array.ndim
            buffer.dims = self.array(ctypes.c_int64, array.shape)
        return self.keep(buffer)

    def span(self, data: bytes) -> int:
        """Return the address of a string."""
        memory = ctypes.create_string_buffer(data)
        return self.keep(struct("FfiSpan")(self.keep(memory), len(data)))

    def attributes(self, entries: Mapping[str, a.Attribute]) -> int:
        """Return the address of a dictionary."""
        names = sorted(entries)
        pairs = [self._attribute(name, entries[name]) for name in names]
        attributes = struct("FfiAttrs")()
        attributes.struct_size, attributes.size = ctypes.sizeof(attributes), len(names)
        attributes.types = self.array(ctypes.c_int32, [kind for kind, _ in pairs])
        attributes.names = self.array(ctypes.c_size_t, [self.span(name.encode()) for name in names])
        attributes.attrs = self.array(ctypes.c_size_t, [address for _, address in pairs])
        return self.keep(attributes)

    def _attribute(self, name: str, value: a.Attribute) -> tuple[int, int]:
        """The kind of an attribute and its address."""
        match value:
            case a.StringAttr():
                return _STRING, self.span(value.data)
            case a.DictAttr():
                return _DICTIONARY, self.attributes(value.entries)
            case a.BoolAttr():
                return _SCALAR, self._scalar(np.bool_(value.value))
            case a.IntegerAttr() | a.FloatAttr() if isinstance(value.type, ElementType):
                return _SCALAR, self._scalar(np.array(value.value, value.type.dtype))
            case a.DenseArrayAttr():
                return _ARRAY, self._array(np.array(value.values, value.element_type.dtype))
            case a.DenseAttr():
                return _ARRAY, self._array(np.array(value.array, order="C"))
        raise unimplemented(f"attribute {name!r} of a custom call is {value}, which no handler takes")

    def _scalar(self, value: Any) -> int:
        array = np.array(value)
        return self.keep(struct("FfiScalar")(_number(array.dtype), self._data(array)))

    def _array(self, array: Array) -> int:
        return self.keep(struct("FfiArray")(_number(array.dtype), array.size, self._data(array)))

    def _data(self, array: Array) -> int:
        self._kept.append(array)
        return array.ctypes.data


def _number(dtype: DType) -> int:
    number = _BY_DTYPE.get(dtype)
    if number is None:
        raise unimplemented(f"handlers of custom calls take no {dtype}")
    return number
