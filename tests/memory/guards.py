"""Memory that native code is given, each piece between two pages that must not be touched."""

import ctypes
import itertools
import mmap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from spmd.backends.llvm.emit import function_emitter
from spmd.backends.llvm.jit import loading
from spmd.compiler.schedule import arena, buffers
from spmd.compiler.schedule.arena import Arena, Placement

PAGE = mmap.PAGESIZE
_PROTECT: Callable[[int, int, int], int] = ctypes.CDLL(None, use_errno=True).mprotect
_PROTECT.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guards:
    """Where arrays are put: `at_end` before a page that must not be touched, else after one.

    Buffers in the arena have pages of their own, too, and no two of them the same.
    """

    def __init__(self, *, at_end: bool) -> None:
        self.at_end = at_end
        #: By the size of an arena, which is no other's: where the pages lie that must not be touched.
        self._arenas: dict[int, list[int]] = {}
        self._numbers = itertools.count(1)
        #: How many results, constants and arenas have been guarded: native code is given what it is given here.
        self.results = self.constants = self.arenas = 0

    def install(self) -> None:
        """From now on, all that native code is given lies between such pages; small values, too, lie in buffers."""
        loading.allocate = self.allocate
        buffers.SLOT = 0
        function_emitter._EMBEDDED = -1
        arena.ALIGNMENT = 1
        Arena.place = lambda buffers: self._place(buffers._sizes)
        make_call = loading._call

        def call_with_guards(native: Any, code: Any, types: Any) -> Any:
            self.constants += len(code.constants)
            return make_call(native, replace(code, constants=tuple(map(self.copy, code.constants))), types)

        loading._call = call_with_guards

    def copy(self, array: np.ndarray) -> np.ndarray:
        """`array` between two pages that must not be touched."""
        copy = self.array(array.shape, array.dtype)
        copy[...] = array
        return copy

    def allocate(self, shape: Any, dtype: Any) -> np.ndarray:
        """In the place of np.empty."""
        forbidden = self._arenas.get(shape) if isinstance(shape, int) else None
        if forbidden is None:
            self.results += 1
            return self.array((shape,) if isinstance(shape, int) else shape, np.dtype(dtype))
        self.arenas += 1
        memory = np.frombuffer(_mapped(shape), np.uint8)
        for place in forbidden:
            _forbid(memory.ctypes.data + place, PAGE)
        return memory

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array of zeros, all by itself."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        room = -(-max(size, 1) // PAGE) * PAGE
        memory = np.frombuffer(_mapped(room + 2 * PAGE), np.uint8)
        begin = PAGE + (room - size if self.at_end else 0)
        _forbid(memory.ctypes.data, PAGE)
        _forbid(memory.ctypes.data + PAGE + room, PAGE)
        return memory[begin : begin + size].view(dtype).reshape(shape)

    def _place(self, sizes: list[int]) -> Placement:
        """An arena in which each buffer has pages of its own."""
        offsets, forbidden, end = [], [0], PAGE
        for size in sizes:
            room = -(-size // PAGE) * PAGE
            offsets.append(end + (room - size) // 8 * 8 if self.at_end else end)
            forbidden.append(end + room)
            end += room + PAGE
        if not sizes:
            return Placement([], [], 0)
        total = end + next(self._numbers) * PAGE  # as no other arena
        self._arenas[total] = forbidden
        return Placement([None] * len(sizes), offsets, total)


def _mapped(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size)


def _forbid(address: int, size: int) -> None:
    if _PROTECT(address, size, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0):
        raise OSError(ctypes.get_errno(), "mprotect")
