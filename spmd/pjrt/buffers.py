"""Buffers: arrays of NumPy that a frontend holds.

A buffer is dense, and says in which order its dimensions lie, so that others may read its memory. Memory is shared both
ways: with arrays that are given for as long as the buffer lives, and with holders of external references.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from spmd.pjrt.devices import Client, Device, Memory
from spmd.pjrt.element_types import TOKEN, dtype_of, number_of
from spmd.pjrt.entries import destroys, entry
from spmd.pjrt.errors import Code, PjrtError, unimplemented
from spmd.pjrt.events import PENDING, READY, Event
from spmd.pjrt.handles import Handle, find, find_or_none, number_of_kind
from spmd.pjrt.layouts import Order, as_laid, copied_in, in_memory, is_laid, laid, layout_of, order_of
from spmd.pjrt.records import allocate, count_down, count_up, release
from spmd.pjrt.runs import Run
from spmd.pjrt.structs import place, struct
from spmd.support.arrays import Array, DType

#: What may be done with memory that is given: copied, or shared until the buffer is gone.
_SHARED_FOR_LIFE = 2, 3  # kImmutableZeroCopy, kMutableZeroCopy
#: Shared memory is aligned so, as XLA has it.
_ALIGNMENT = 16
#: Shapes of so many dimensions lie in the record itself.
INLINE_SIZES = 8
_SIZES_AT = place("BufferRecord", "sizes0")[0]
#: The element type (PJRT's number) and the shape of a buffer.
Facts = tuple[int, tuple[int, ...]]
#: Gives the array of a buffer, None for a token; raises the error of the run that gives it.
Take = Callable[[], "Array | None"]
_taking_over = threading.Lock()
#: Held while a value arrives, and while a buffer goes: its record is written to by one thread at a time.
_ending = threading.Lock()
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class _Coming:
    """A value that a run gives, for those that take it later."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.array: Array | None = None

    def take(self) -> Array | None:
        """Return the value in C order once it is there; raises the error of the run that gives it."""
        self._run.wait()
        return _in_order(self.array)


class Buffer(Handle):
    """An array, whose dimensions lie in an order, in a memory of a device, or a token (None)."""

    KIND = "Buffer"
    #: The run that gives the value, or has failed to; None where the value is there.
    run: Run | None
    _is_gone: bool
    #: The value that the run gives, which other runs take even if the buffer is gone by then; None once it is there.
    _coming: _Coming | None

    def __init__(self, array: Array | None, memory: Memory, order: Order = None) -> None:
        super().__init__()
        facts = (TOKEN, ()) if array is None else (number_of(array.dtype), array.shape)
        self._describe(facts, array, memory, order)
        if array is not None:
            self.record.data = array.ctypes.data

    @classmethod
    def of_run(cls, facts: Facts, memory: Memory, order: Order, run: Run) -> Buffer:
        """Return a buffer whose value a run of a program gives (`arrive`)."""
        buffer = cls.__new__(cls)
        Handle.__init__(buffer)
        buffer._describe(facts, None, memory, order)
        buffer.run, buffer._coming, buffer.record.ready = run, _Coming(run), PENDING.address
        return buffer

    def arrive(self, array: Array | None) -> None:
        """Take the value that a run has given."""
        assert self._coming is not None
        self._coming.array = array
        with _ending:
            if not self._is_gone:
                self.array = array
                self.record.data = 0 if array is None else array.ctypes.data
                self.record.ready = READY.address
        self.run = self._coming = None

    def _describe(self, facts: Facts, array: Array | None, memory: Memory, order: Order) -> None:
        self._begin(facts, array, memory, order)
        fill(self.record, facts, memory, order)
        if len(facts[1]) > INLINE_SIZES:
            self.put_words("dims", facts[1], ctypes.c_int64)
        count_up(memory.device.address, self.record.size)

    def _begin(self, facts: Facts, array: Array | None, memory: Memory, order: Order = None) -> None:
        self.facts = facts
        self.array = array
        self.run = None
        self._coming = None
        self._is_gone = False
        self.order = order
        self.memory = memory
        self._held: Array | None = None
        self._references = 0
        #: The runs under way that read the memory.
        self._readers: list[Run] = []
        self._at_end: Event | None = None
        self._deleter: tuple[int, int, int] | None = None

    @classmethod
    def of_record(cls, address: int) -> Buffer | None:
        """Return the object of a buffer that machine code has made; from now on it frees the memory."""
        record = struct("BufferRecord").from_address(address)
        with _taking_over:
            if record.kind != number_of_kind(cls.KIND) or not record.is_native:
                return None
            record.is_native = False
            buffer = cls.__new__(cls)
            Handle.__init__(buffer, address)
        shape = tuple((ctypes.c_int64 * record.num_dims).from_address(record.dims))
        array = None
        if record.block:
            array = _Block(record.block, record.data, record.size).array(dtype_of(record.type), shape)
        buffer._begin((record.type, shape), array, find(Memory, record.memory))
        buffer._references, buffer._is_gone = record.references, record.is_deleted
        return buffer

    @property
    def can_be_left(self) -> bool:
        """Whether machine code can own the memory: not where others know it."""
        is_here = self.array is not None and self.order is None and not self.record.is_deleted
        return is_here and not self._is_shared and not self._readers

    def leave_to_machine_code(self) -> None:
        """Move the value to memory that machine code owns; MemoryError where there is none."""
        array = self.value()
        assert array is not None
        block = allocate(array.nbytes + 64)
        if not block:
            raise MemoryError(f"there are no {array.nbytes} bytes for an argument")
        self.record.block, self.record.data = block, block + 64 - block % 64
        ctypes.memmove(self.record.data, array.ctypes.data, array.nbytes)
        self.record.is_native, self.array = True, None
        self.forget()

    @property
    def _is_shared(self) -> bool:
        """Whether others know the memory."""
        return self._references > 0 or self._at_end is not None or self._deleter is not None

    def value(self) -> Array | None:
        """Return the array, once it is there; PjrtError where it is gone, and the error of the run that gives it."""
        self.check()
        run = self.run  # another thread may set it to None
        if run is not None:
            run.wait()
        return self.array

    def check(self) -> None:
        """PjrtError where the value is gone; raises the error of a run that has failed to give it."""
        if self.record.is_deleted:
            raise PjrtError(Code.INVALID_ARGUMENT, "the buffer has been deleted or donated")
        run = self.run
        if run is not None and run.is_done:
            run.wait()

    def delete(self) -> None:
        """Free the memory, once there is no external reference to it."""
        if self.record.is_deleted:
            return
        with _ending:
            self.record.is_deleted = self._is_gone = True
            self._held, self.array = self.array, None
        count_down(self.memory.device.address, self.record.size)
        self._free_unused()

    def read_by(self, run: Run) -> None:
        """Keep the memory as it is until `run` has ended."""
        self._readers.append(run)
        run.then(lambda error: self._was_read(run))

    def _was_read(self, run: Run) -> None:
        self._readers.remove(run)
        if self._is_gone:
            self._free_unused()

    def destroy(self) -> None:
        """Give up the memory and the record."""
        self.delete()
        self.release()

    def lend(self) -> Take:
        """Return what gives the array in C order, once it is there, even if the buffer is gone by then."""
        coming = self._coming
        if coming is not None:
            return coming.take
        array = self.value()
        return lambda: _in_order(array)

    def donate(self, is_here: bool) -> Take:
        """Delete the buffer; return what gives its array to be written over, in C order, once it is there.

        That is a copy, where the memory is shared, and where runs that read it have not ended and the one that writes
        it `is_here`, not behind these in the queue.
        """
        self.check()
        coming = self._coming
        if coming is not None:
            self.delete()
            return coming.take
        array, is_shared = self.array, self._is_shared or (is_here and bool(self._readers))
        self.delete()
        if is_shared and array is not None:
            array = array.copy(order="C")
        return lambda: _in_order(array)

    def refer(self, count: int) -> None:
        """Count external references up or down."""
        self._references = max(self._references + count, 0)
        if self._is_gone:
            self._free_unused()

    @property
    def is_referred_to(self) -> bool:
        """Whether there are external references to the memory."""
        return self._references > 0

    def share(self, at_end: Event | None, deleter: tuple[int, int, int] | None) -> None:
        """Keep memory of another: `at_end` happens, `deleter` is called (a function and its arguments) at the end."""
        self._at_end, self._deleter = at_end, deleter

    def _free_unused(self) -> None:
        if self._references or self._readers:
            return
        self._held = None
        event, self._at_end = self._at_end, None
        deleter, self._deleter = self._deleter, None
        if event is not None:
            event.finish()
        if deleter is not None:
            function, *arguments = deleter
            _Deleter(function)(*arguments)


def _in_order(array: Array | None) -> Array | None:
    return None if array is None else laid(array, None)


class _Block:
    """Memory of machine code's own, which is freed with the last array of it."""

    def __init__(self, block: int, data: int, size: int) -> None:
        self._block = block
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (data, False)}

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Return the memory as an array."""
        return np.asarray(self).view(dtype).reshape(shape) if 0 not in shape else np.empty(shape, dtype)

    def __del__(self) -> None:
        release(self._block)


def fill(record: Any, facts: Facts, memory: Memory | None, order: Order = None) -> None:
    """Write what is the same of all buffers of a type in a memory, whose dimensions lie in an order."""
    number, shape = facts
    record.type, record.num_dims, record.is_on_cpu, record.ready = number, len(shape), True, READY.address
    record.size = 0 if number == TOKEN else math.prod(shape) * dtype_of(number).itemsize
    if len(shape) <= INLINE_SIZES:
        record.dims = ctypes.addressof(record) + _SIZES_AT
        (ctypes.c_int64 * INLINE_SIZES).from_address(record.dims)[: len(shape)] = list(shape)
    layout = layout_of(len(shape), order)
    record.layout, record.minor_to_major = layout.address, layout.minor_to_major
    if memory is not None:
        record.device, record.memory = memory.device.address, memory.address


def copied(array: Array | None, memory: Memory, order: Order = None) -> Buffer:
    """Return a buffer with a copy of an array, whose dimensions lie in an order."""
    return Buffer(None if array is None else copied_in(array, order), memory, order)


def _memory(address: int, size: int) -> Array:
    """The bytes at an address."""
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, np.uint8)


def memory_at(address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Array:
    """Return the array that lies at an address, read-only, for as long as the memory does."""
    if 0 in shape:
        return np.empty(shape, dtype)
    if not address:
        raise PjrtError(Code.INVALID_ARGUMENT, f"an array of shape {shape} lies nowhere")
    if strides is None:
        array = _memory(address, math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
    else:
        # As bytes: there are dtypes that NumPy strides nothing of.
        first = _memory(address, dtype.itemsize).view(f"V{dtype.itemsize}").reshape(())
        array = np.lib.stride_tricks.as_strided(first, shape, strides).view(dtype)
    array.flags.writeable = False
    return array


def sizes_at(address: int, count: int, what: str) -> tuple[int, ...]:
    """Return numbers of 64 bits in memory."""
    if count and not address:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{count} {what} lie nowhere")
    return tuple((ctypes.c_int64 * count).from_address(address)) if count else ()


def _shape_at(address: int, count: int) -> tuple[int, ...]:
    if count > 64:
        raise unimplemented(f"an array of {count} dimensions: NumPy's have 64 at most")
    shape = sizes_at(address, count, "sizes")
    if any(size < 0 for size in shape):
        raise PjrtError(Code.INVALID_ARGUMENT, f"an array of shape {shape}")
    return shape


def chosen_memory(memory: int, device: int) -> Memory:
    """Return the memory that arguments name, by itself or as its device's first."""
    if memory:
        return find(Memory, memory)
    owner = find(Device, device)
    if not owner.memories:
        raise PjrtError(Code.INVALID_ARGUMENT, f"device {owner.id} is another process's")
    return owner.memories[0]


@entry("Client_BufferFromHostBuffer")
def _(args: Any) -> None:
    find(Client, args.client)
    memory = chosen_memory(args.memory, args.device)
    dtype, shape = dtype_of(args.type), _shape_at(args.dims, args.num_dims)
    order = order_of(args.device_layout, len(shape)) if args.device_layout else None
    strides = None
    if args.num_byte_strides:
        if args.num_byte_strides != len(shape):
            raise PjrtError(Code.INVALID_ARGUMENT, f"{args.num_byte_strides} strides of {len(shape)} dimensions")
        strides = sizes_at(args.byte_strides, args.num_byte_strides, "strides")
    given = memory_at(args.data, dtype, shape, strides)
    is_aligned = is_laid(given, order) and args.data % _ALIGNMENT == 0
    if args.host_buffer_semantics in _SHARED_FOR_LIFE and is_aligned and given.size:
        buffer, event = Buffer(given, memory, order), Event()
        buffer.share(event, None)
        args.buffer, args.done_with_host_buffer = buffer.address, event.address
        return
    args.buffer, args.done_with_host_buffer = copied(given, memory, order).address, READY.address


@entry("Client_CreateViewOfDeviceBuffer")
def _(args: Any) -> None:
    find(Client, args.client)
    memory = chosen_memory(args.memory, args.device)
    shape = _shape_at(args.dims, args.num_dims)
    order = order_of(args.layout, len(shape)) if args.layout else None
    lying = memory_at(args.device_buffer_ptr, dtype_of(args.element_type), in_memory(shape, order), None)
    buffer = Buffer(as_laid(lying, order), memory, order)
    if args.on_delete_callback:
        buffer.share(None, (args.on_delete_callback, args.device_buffer_ptr, args.on_delete_callback_arg))
    args.buffer = buffer.address


@entry("Client_CreateUninitializedBuffer")
def _(args: Any) -> None:
    find(Client, args.client)
    shape = _shape_at(args.shape_dims, args.shape_num_dims)
    order = order_of(args.shape_layout, len(shape)) if args.shape_layout else None
    array = as_laid(np.zeros(in_memory(shape, order), dtype_of(args.shape_element_type)), order)
    args.buffer = Buffer(array, chosen_memory(args.memory, args.device), order).address


destroys("Buffer_Destroy", Buffer, "buffer")


@entry("Buffer_Delete", fails=False)
def _(args: Any) -> None:
    buffer = find_or_none(Buffer, args.buffer)
    if buffer is not None:
        buffer.delete()


@entry("Buffer_CopyToDevice")
def _(args: Any) -> None:
    buffer = find(Buffer, args.buffer)
    args.dst_buffer = copied(buffer.value(), chosen_memory(0, args.dst_device), buffer.order).address


@entry("Buffer_CopyToMemory")
def _(args: Any) -> None:
    buffer = find(Buffer, args.buffer)
    args.dst_buffer = copied(buffer.value(), find(Memory, args.dst_memory), buffer.order).address


@entry("Buffer_ReadyEvent")
def _(args: Any) -> None:
    args.event = when_done(find(Buffer, args.buffer).run)


def when_done(run: Run | None) -> int:
    """Return the handle of an event that happens, or fails, with a run; None has ended well."""
    if run is None:
        return READY.address
    event = Event()
    run.then(event.finish)
    return event.address


@entry("Buffer_ToHostBuffer")
def _(args: Any) -> None:
    buffer = find(Buffer, args.src)
    buffer.check()
    (number, shape), size, dst = buffer.facts, buffer.record.size, args.dst
    if number == TOKEN:
        raise unimplemented("a token has no data")
    if not dst:
        args.dst_size = size
        return
    if args.dst_size < size:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{size} bytes do not fit into {args.dst_size}")
    order = order_of(args.host_layout, len(shape)) if args.host_layout else None
    if buffer.run is None:
        _copy_to(dst, buffer.value(), order)
        args.event = READY.address
        return
    take, event = buffer.lend(), Event()

    def copy(error: PjrtError | None) -> None:
        try:
            _copy_to(dst, take(), order)
        except BaseException as fault:
            error = PjrtError.of(fault)
        event.finish(error)

    buffer.run.then(copy)
    args.event = event.address


def _copy_to(address: int, array: Array | None, order: Order) -> None:
    """Write an array to memory, its dimensions in an order."""
    if array is not None and array.size:
        moved = array if order is None else array.transpose(order)
        _memory(address, array.nbytes).view(array.dtype).reshape(moved.shape)[...] = moved


@entry("Buffer_CopyRawToHost")
def _(args: Any) -> None:
    array = find(Buffer, args.buffer).value()
    size = 0 if array is None else array.nbytes
    if array is None or args.offset < 0 or args.transfer_size < 0 or args.offset + args.transfer_size > size:
        raise PjrtError(
            Code.INVALID_ARGUMENT, f"{args.transfer_size} bytes at {args.offset} of a buffer of {size} bytes"
        )
    if args.transfer_size:
        ctypes.memmove(args.dst, array.ctypes.data + args.offset, args.transfer_size)
    args.event = READY.address


@entry("Buffer_UnsafePointer")
def _(args: Any) -> None:
    buffer = find(Buffer, args.buffer)
    buffer.value()
    args.buffer_pointer = buffer.record.data


@entry("Buffer_OpaqueDeviceMemoryDataPointer")
def _(args: Any) -> None:
    buffer = find(Buffer, args.buffer)
    if not buffer.is_referred_to:
        buffer.value()
    args.device_memory_ptr = buffer.record.data


@entry("Buffer_IncreaseExternalReferenceCount")
def _(args: Any) -> None:
    buffer = find(Buffer, args.buffer)
    buffer.value()
    buffer.refer(1)


@entry("Buffer_DecreaseExternalReferenceCount")
def _(args: Any) -> None:
    find(Buffer, args.buffer).refer(-1)
