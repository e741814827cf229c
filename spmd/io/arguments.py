"""Arguments for a program: from files, or made from the signature of its function."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from spmd.errors import UsageError
from spmd.ir import Function, Module, Op, Value
from spmd.support.array_files import read_arrays
from spmd.support.arrays import Array, numpy_has
from spmd.types import TensorType, Type

_MOST_SHOWN = 8
DEFAULT_BOUND = 10
#: Ops whose result is still an index when their operand is.
_CARRIERS = "add broadcast_in_dim clamp concatenate convert maximum minimum pad reshape select slice transpose"
CARRIERS = frozenset(f"stablehlo.{name}" for name in _CARRIERS.split())


def load(paths: Sequence[str], function: Function, rank: int = 0) -> list[Array]:
    """The arrays of ``.npy`` and ``.npz`` files, in order; ``{rank}`` in a name is replaced by the process's rank.

    :raises UsageError: when a file is not of these formats, or the arrays do not match the function's arguments.
    """
    arrays: list[tuple[str, Array]] = []
    for path in (path.replace("{rank}", str(rank)) for path in paths):
        arrays += [(f"{path}[{name}]" if name else path, array) for name, array in read_arrays(path).items()]
    types = function.type.inputs
    if len(arrays) != len(types):
        count = f"{len(types)} argument{'s' * (len(types) != 1)}"
        raise UsageError(f"@{function.symbol} takes {count} ({_listed(types)}), got {len(arrays)}")
    pairs = enumerate(zip(arrays, types, strict=True))
    return [_as_declared(array, type, f"{where}: argument {index}") for index, ((where, array), type) in pairs]


def _listed(types: Sequence[Type]) -> str:
    shown = ", ".join(map(str, types[:_MOST_SHOWN]))
    return f"{shown}, ..." if len(types) > _MOST_SHOWN else shown


def _as_declared(array: Array, type: Type, what: str) -> Array:
    """``array`` in native byte order and in the element type that the program declares.

    NumPy's files store the bits of ml_dtypes' types such as bf16, but not the type.
    """
    if not isinstance(type, TensorType):
        raise UsageError(f"{what} is of type {type}, which no file holds")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    bits_alone = array.dtype == np.dtype(f"V{array.dtype.itemsize}") and not numpy_has(type.dtype)
    if bits_alone and array.dtype.itemsize == type.dtype.itemsize:
        array = array.view(type.dtype)
    fits = len(array.shape) == len(type.shape) and all(
        size in (None, of_file) for size, of_file in zip(type.shape, array.shape, strict=True)
    )
    if array.dtype != type.dtype or not fits:
        of_file = "x".join(map(str, (*array.shape, array.dtype.name)))
        raise UsageError(f"{what} is of type {type}, the file holds {of_file}")
    return array


def make(module: Module, function: str = "main", seed: int = 0, scale: float = 1.0) -> list[Array]:
    """One array per argument: normal floats of that deviation, integers in range of what they index, random keys."""
    main = module.function(function)
    generator = np.random.default_rng(seed)
    return [_array(generator, module, main, value, scale) for value in main.arguments]


def _array(generator: np.random.Generator, module: Module, main: Function, value: Value, scale: float) -> Array:
    tensor = value.type
    if not isinstance(tensor, TensorType) or not tensor.is_static:
        why = "whose sizes are not known" if isinstance(tensor, TensorType) else "which is no tensor"
        raise UsageError(f"--random cannot make argument {value.index} of @{main.symbol}, a {tensor}, {why}")
    dtype, shape = tensor.dtype, tuple(int(size or 0) for size in tensor.shape)
    if dtype.kind == "c":
        return np.asarray(scale * (generator.standard_normal(shape) + 1j * generator.standard_normal(shape))).astype(
            dtype
        )
    if dtype.kind == "b":
        return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
    if dtype.kind == "u" and shape == (2,):  # A key of JAX's random bits.
        return generator.integers(0, np.iinfo(dtype).max, shape, dtype)
    if dtype.name.startswith(("int", "uint")):
        largest = int(ml_dtypes.iinfo(dtype).max)  # type: ignore[no-untyped-call]
        return generator.integers(0, min(index_bound(module, main, value), largest + 1), shape).astype(dtype)
    return np.asarray(scale * generator.standard_normal(shape)).astype(dtype)


def index_bound(module: Module, main: Function, value: Value) -> int:
    """One more than the greatest index that ``value`` may hold, from the gathers and scatters that use it."""
    bounds: list[int] = []
    reached, pending = {value}, [(main, value)]
    while pending:
        function, current = pending.pop()
        for op in function.body.walk():
            for position in [index for index, operand in enumerate(op.operands) if operand is current]:
                bounds += _bounds_at(op, position)
                for owner, following in _carried_by(module, function, op, position):
                    if following not in reached:
                        reached.add(following)
                        pending.append((owner, following))
    return min(bounds, default=DEFAULT_BOUND)


def _bounds_at(op: Op, position: int) -> list[int]:
    """Sizes of the dimensions that operand ``position`` of ``op`` indexes; empty if it is not an index."""
    if op.name == "stablehlo.gather" and position == 1:
        dimensions = op["dimension_numbers"].start_index_map
    elif op.name == "stablehlo.scatter" and position == len(op.operands) // 2:
        dimensions = op["scatter_dimension_numbers"].scatter_dims_to_operand_dims
    elif op.name in ("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"):
        first = 1 if op.name == "stablehlo.dynamic_slice" else 2
        dimensions = [position - first] if position >= first else []
    else:
        return []
    return [int(op.operands[0].tensor.shape[dimension] or 1) for dimension in dimensions]


def _carried_by(module: Module, function: Function, op: Op, position: int) -> list[tuple[Function, Value]]:
    """Values that hold the same index as operand ``position`` of ``op``, each with the function it is in."""
    if op.name == "func.call":
        callee = module.function(op["callee"])
        return [(callee, callee.arguments[position])]
    if op.name == "func.return":
        return [(caller, call.results[position]) for caller, call in _calls(module, function.symbol)]
    return [(function, result) for result in op.results] if op.name in CARRIERS else []


def _calls(module: Module, callee: str) -> list[tuple[Function, Op]]:
    ops = [(function, op) for function in module.functions for op in function.body.walk()]
    return [(function, op) for function, op in ops if op.name == "func.call" and op["callee"] == callee]
