"""Custom-call targets that are C functions, `void target(void* out, void** in)`.

`in` holds the address of each operand. `out` is the address of the result, or, for several results or none, of an array
of their addresses. A tuple is likewise the address of an array of pointers. Arrays are dense, in the layout of the
call, or row-major by default. Source: XLA operation semantics, "CustomCall".
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

import numpy as np

from collectives.exploration import reach
from spmd.analysis.custom_calls import is_of_c
from spmd.backends.kernels import TARGETS, Context, Kernel, load_kernels
from spmd.compiler.schedule.fusibility import is_plain
from spmd.dialects.custom_call import output_type
from spmd.errors import CompileError, Diagnostic, UsageError
from spmd.ir import Op
from spmd.support.arrays import Array, Results
from spmd.support.c_names import why_taken
from spmd.types import BufferType, TensorType, TupleType, Type


@dataclass(frozen=True)
class CFunction:
    """A C function at `address`; `keep` keeps its library, or closure, alive."""

    address: int
    keep: object


#: C functions by target name.
C_TARGETS: dict[str, CFunction] = {}

#: API versions whose targets take (out, in) only: API_VERSION_UNSPECIFIED and API_VERSION_ORIGINAL.
_PLAIN_VERSIONS = (0, 1)
#: Flag of ctypes functions that are called with the GIL, as of ctypes.PyDLL.
_PYTHON_API = 0x4
_PARAMETERS = 2
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def c_function(name: str, function: object) -> CFunction | None:
    """Return `function` as a C target: a ctypes function, or the symbol `name` of a ctypes library.

    None for anything else. UsageError for a library without that symbol, and for a function of another signature.
    """
    if isinstance(function, ctypes.PyDLL) or getattr(function, "_flags_", 0) & _PYTHON_API:
        raise UsageError(
            f"target {name!r} is called without the interpreter's lock, which ctypes.PyDLL is for: use ctypes.CDLL"
        )
    if isinstance(function, ctypes.CDLL):
        library = function
        try:
            function = library[name]
        except AttributeError:
            raise UsageError(
                f"{library._name or 'what this process has loaded'} has no symbol {name!r}: a target is declared "
                f'extern "C" void {name}(void* out, void** in), or its ctypes function is given'
            ) from None
    if not isinstance(function, ctypes._CFuncPtr):  # type: ignore[attr-defined]  # the base class of ctypes functions
        return None
    taken = getattr(function, "argtypes", None)
    if taken is not None and len(taken) != _PARAMETERS:
        raise UsageError(f"target {name!r} is void {name}(void* out, void** in), got {len(taken)} argtypes")
    address = ctypes.cast(function, ctypes.c_void_p).value
    if not address:
        raise UsageError(f"target {name!r} is a null pointer")
    return CFunction(address, function)


def check_version(op: Op) -> None:
    """Raise CompileError for a call whose API version passes more than (out, in)."""
    version = op["api_version"]
    if version not in _PLAIN_VERSIONS:
        text = (
            f"target {op['call_target_name']!r} is a function of C, void target(void* out, void** in), which "
            f"api_version = 1 calls, got api_version = {version}; a function of Python is called by any"
        )
        raise CompileError(Diagnostic(op.location, text, op.name))


def can_be_linked(op: Op) -> bool:
    """Return whether an object file can call the target of `op` by name, as a C symbol.

    That is so unless Python runs the target, or it is built in.
    """
    if op.name != "stablehlo.custom_call" or not is_plain_call(op):
        return False
    load_kernels()  # registers built-in targets
    target = op["call_target_name"]
    return is_of_c(target) or target not in TARGETS


def is_plain_call(op: Op) -> bool:
    """Return whether all operands and results are row-major arrays."""
    if not all(is_plain(value.type) for value in (*op.operands, *op.results)):
        return False
    layouts = (*(op["operand_layouts"] or ()), *(op["result_layouts"] or ()))
    return all(np.array_equal(layout, np.arange(layout.size)[::-1]) for layout in layouts)


def check_linked(op: Op, name: str) -> None:
    """Raise CompileError if the object-file function `name` cannot call the target of `op` by name."""
    target = op["call_target_name"]
    check_version(op)
    reason = "is the function's own name" if target == name else why_taken(target)
    if reason is not None:
        text = f"a linker finds the target of a custom call by its name, and {target!r} {reason}"
        raise CompileError(Diagnostic(op.location, text, op.name))


def aliased(op: Op) -> dict[tuple[int, ...], tuple[int, tuple[int, ...]]]:
    """Return, by result path, the operand number and path that share its memory."""
    return {
        tuple(alias.output_tuple_indices): (alias.operand_index, tuple(alias.operand_tuple_indices))
        for alias in op["output_operand_aliases"]
    }


def result_of(op: Op, place: Sequence[int]) -> int:
    """Return the number of the result at path `place`."""
    return list(_leaf_places(output_type(op))).index(tuple(place))


def _leaf_places(type: Type, place: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if isinstance(type, TupleType):
        for index, part in enumerate(type.types):
            yield from _leaf_places(part, (*place, index))
    else:
        yield place


def c_kernel(op: Op, context: Context) -> Kernel:
    """Return the kernel that calls the C function registered for the target of `op`."""
    check_version(op)
    name, shared = op["call_target_name"], aliased(op)
    function = C_TARGETS[name]
    call_function = _PROTOTYPE(function.address)
    for result in op.results:
        if isinstance(result.type, TensorType) and not result.type.is_static:
            text = f"target {name!r} is a function of C, which gives no shapes, got a result of type {result.type}"
            raise CompileError(Diagnostic(op.location, text, op.name))
    layouts = _layouts(op["operand_layouts"])
    operands = [_memory_of(type, layouts) for type in op.operand_types]
    output = _memory_of(output_type(op), _layouts(op["result_layouts"]))
    in_tuple = [isinstance(result.type, TupleType) for result in op.results]

    def call(*values: Any) -> Results:
        reach(f"custom_call @{name}")
        given = [memory.filled(value) for memory, value in zip(operands, values, strict=True)]
        made = output.empty()
        for place, (index, part) in shared.items():
            target, source = _part(made, place), _part(given[index], part)
            target.array[...] = source.array
            source.array = target.array
        kept: list[object] = [function]
        inputs = _table([value.address(kept) for value in given])
        call_function(made.address(kept), ctypes.addressof(inputs))
        if len(in_tuple) == 1 and in_tuple[0]:
            return cast(Results, made.value())
        results = tuple(leaf.value() for leaf in made.leaves())
        return results[0] if len(results) == 1 else results

    return Kernel(call)


def _layouts(layouts: Sequence[Array] | None) -> Iterator[tuple[int, ...] | None]:
    """Yield the dimension order of each array, major to minor; None: row-major."""
    return repeat(None) if layouts is None else (tuple(layout.tolist()[::-1]) for layout in layouts)


class _Leaf:
    """An array in memory with dimensions in `order`, major first (None: row-major); or a token."""

    def __init__(self, array: Array | None, order: Sequence[int] | None = None) -> None:
        self.array: Any = array
        self._order = order

    def address(self, kept: list[object]) -> int | None:
        """Return the address of its elements; None for a token. `kept` must outlive the address."""
        return None if self.array is None else int(self.array.ctypes.data)

    def value(self) -> Any:
        return self.array if self._order is None else self.array.transpose(np.argsort(self._order))

    def leaves(self) -> list[_Leaf]:
        return [self]


class _Node:
    """The elements of a tuple in memory."""

    def __init__(self, parts: Sequence[_Leaf | _Node]) -> None:
        self.parts = parts

    def address(self, kept: list[object]) -> int:
        table = _table([part.address(kept) for part in self.parts])
        kept.append(table)
        return ctypes.addressof(table)

    def value(self) -> Any:
        return tuple(part.value() for part in self.parts)

    def leaves(self) -> list[_Leaf]:
        return [leaf for part in self.parts for leaf in part.leaves()]


@dataclass(frozen=True)
class _ArrayMemory:
    """Allocates arrays of `type` with dimensions in `order`."""

    type: TensorType
    order: tuple[int, ...] | None

    def filled(self, value: Any) -> _Leaf:
        array = np.asarray(value)
        ordered = array if self.order is None else array.transpose(self.order)
        return _Leaf(np.require(ordered, requirements=("C", "A")), self.order)

    def empty(self) -> _Leaf:
        shape = self.type.static_shape
        ordered = shape if self.order is None else tuple(shape[dimension] for dimension in self.order)
        return _Leaf(np.empty(ordered, self.type.dtype), self.order)


@dataclass(frozen=True)
class _TokenMemory:
    """Tokens have no memory: their address is null."""

    def filled(self, value: Any) -> _Leaf:
        return _Leaf(None)

    def empty(self) -> _Leaf:
        return _Leaf(None)


@dataclass(frozen=True)
class _TupleMemory:
    """Allocates tuples of `parts`."""

    parts: Sequence[_ArrayMemory | _TokenMemory | _TupleMemory]

    def filled(self, value: Any) -> _Node:
        return _Node([part.filled(each) for part, each in zip(self.parts, value, strict=True)])

    def empty(self) -> _Node:
        return _Node([part.empty() for part in self.parts])


def _memory_of(type: Type, orders: Iterator[tuple[int, ...] | None]) -> _ArrayMemory | _TokenMemory | _TupleMemory:
    match type:
        case TupleType():
            return _TupleMemory([_memory_of(part, orders) for part in type.types])
        case TensorType() | BufferType():
            return _ArrayMemory(TensorType(type.shape, type.element_type), next(orders))
    next(orders)
    return _TokenMemory()


def _part(value: _Leaf | _Node, place: Sequence[int]) -> Any:
    for index in place:
        assert isinstance(value, _Node)
        value = value.parts[index]
    return value


def _table(addresses: Sequence[int | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
