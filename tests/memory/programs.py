"""Programs whose constants are arguments, programs of unknown or wrong sizes, and programs of hostile indices."""

from collections.abc import Sequence

import numpy as np

import spmd
from spmd.analysis.constants import constant_array
from spmd.compiler.pipeline.passes import with_function
from spmd.compiler.transforms.inline import inline
from spmd.dialects.faults import faults
from spmd.dialects.make import make_op
from spmd.ir import Function, Op, Value
from spmd.ir.attributes import DenseAttr
from spmd.types import FunctionType, TensorType, Type

#: Ops whose meaning is their declared shape.
_SHAPED = frozenset(
    {
        "stablehlo.iota",
        "stablehlo.reshape",
        "stablehlo.broadcast_in_dim",
        "stablehlo.bitcast_convert",
        "stablehlo.tuple",
    }
)


#: Ops that take a shape, or a part of one, whose rank their result's type has to tell.
_DYNAMIC = frozenset({f"stablehlo.{name}" for name in ("dynamic_iota", "dynamic_reshape", "dynamic_broadcast_in_dim",
                                                       "dynamic_conv", "dynamic_gather", "dynamic_pad",
                                                       "real_dynamic_slice", "rng")})  # fmt: skip


def with_arguments(
    module: spmd.Module, name: str, given: Sequence[np.ndarray] = (), *, symbolic: bool = False
) -> tuple[spmd.Module, list[np.ndarray]] | None:
    """Return the program whose constants are arguments, behind those of function `name`, and the arrays of all.

    `given` holds those of the function's own arguments. None of a program that runs others, or has no arguments then.
    `symbolic`: sizes are unknown, except those of values that ops take as shapes.
    """
    if any(op.name == "interpreter.run_parallel" for op in module.walk()):
        return None
    flat = inline(module, module.function(name), whole=True)
    arrays = list(given)
    values: dict[Value, Value] = {}
    ops: list[Op] = []
    shapes = {value for op in flat.body.ops if op.name in _DYNAMIC for value in op.operands}
    own = list(flat.body.arguments)
    flat.body.set_arguments([])
    for value in own:
        is_loose = symbolic and value not in shapes
        values[value] = flat.body.add_argument(_unsized(value.type) if is_loose else value.type)
    for op in flat.body.ops:
        array = constant_array(op)
        if array is not None:
            is_loose = symbolic and op.result not in shapes
            values[op.result] = flat.body.add_argument(_unsized(op.result.type) if is_loose else op.result.type)
            arrays.append(np.array(array))
            continue
        ops.append(_replaced(op, values, symbolic))
    flat.body.ops = ops
    inputs = tuple(value.type for value in flat.body.arguments)
    results = tuple(flat.body.terminator.operand_types)
    flat.attributes = {"sym_name": name, "function_type": FunctionType(inputs, results)}
    return (with_function(module, flat), arrays) if arrays else None


def _replaced(op: Op, values: dict[Value, Value], symbolic: bool) -> Op:
    """`op` on what stands for its operands, with results of unknown sizes where that can be."""
    for inner in op.walk():
        inner.replace_operands(values)
    if not symbolic or op.definition is None or op.name in _SHAPED or op.definition.is_terminator:
        return op
    loose = op.clone(op.operands, result_types=[_unsized(type) for type in op.result_types], regions=op.regions)
    if next(faults(loose, op.definition), None) is not None:
        return op
    values.update(zip(op.results, loose.results, strict=True))
    return loose


def _unsized(type: Type) -> Type:
    if not isinstance(type, TensorType) or type.is_quantized:
        return type
    return TensorType((None,) * type.rank, type.element_type)


def with_constant(module: spmd.Module, arrays: list[np.ndarray]) -> spmd.Module:
    """The program with its first argument as a constant."""
    flat = inline(module, module.function("main"), whole=True)
    first, *others = flat.body.arguments
    attribute = DenseAttr(arrays[0], first.tensor)
    constant = make_op("stablehlo.constant", (), [first.type], {"value": attribute}, location=flat.location)
    for op in flat.body.ops:
        for inner in op.walk():
            inner.replace_operands({first: constant.result})
    flat.body.ops.insert(0, constant)
    flat.body.set_arguments(others)
    inputs = tuple(value.type for value in others)
    flat.attributes = {"sym_name": "main", "function_type": FunctionType(inputs, flat.type.results)}
    return with_function(module, flat)


def with_wrong_sizes(function: Function, arrays: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Declares a size of an op's result that is not known as another than it will be, or changes an argument's."""
    unknown = [value for op in function.body.ops for value in op.results if _is_unsized(value.type)]
    if unknown and rng.random() < 0.7:
        value = unknown[rng.integers(len(unknown))]
        value.type = TensorType(_other_shape(value.tensor.shape, rng), value.tensor.element_type)
        return arrays
    place = rng.integers(len(arrays))
    type = function.type.inputs[place]
    if not _is_unsized(type):
        return arrays
    shape = _other_shape(arrays[place].shape, rng)
    values = np.resize(arrays[place], shape) if arrays[place].size else np.zeros(shape, arrays[place].dtype)
    return [*arrays[:place], values, *arrays[place + 1 :]]


def _other_shape(shape: tuple[int | None, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """A shape of the same rank, of which one size may be large."""
    sizes = [int(rng.choice([0, 1, 2, 3])) if size is None or rng.random() < 0.3 else size for size in shape]
    sizes[rng.integers(len(sizes))] = int(rng.choice([0, 1, 2, 5, 33, 4097]))
    return tuple(sizes)


def _is_unsized(type: Type) -> bool:
    return isinstance(type, TensorType) and type.rank > 0 and not type.is_static


#: By element type: NumPy's.
_INDEX_TYPES = {f"{sign}i{bits}": np.dtype(f"{kind}{bits // 8}") for sign, kind in (("", "i"), ("u", "u"))
                for bits in (8, 16, 32, 64)}  # fmt: skip


def hostile_indices(dtype: np.dtype, size: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Indices at both ends of their type, and around both ends of an array of `size`."""
    limits = np.iinfo(dtype)
    near = [-size - 1, -3, -2, -1, 0, 1, size - 2, size - 1, size, size + 1, 2 * size]
    ends = [limits.min, limits.min + 1, limits.max // 2, limits.max - 7, limits.max - 1, limits.max]
    known = [index for index in (*near, *ends) if limits.min <= index <= limits.max]
    return np.array([known[k] for k in rng.integers(len(known), size=np.prod(shape, dtype=int))], dtype).reshape(shape)


def indexing_program(rng: np.random.Generator) -> tuple[str, list[np.ndarray]]:
    """A gather, scatter, slice or update at indices that are anywhere, and arguments for it."""
    name, dtype = list(_INDEX_TYPES.items())[rng.integers(len(_INDEX_TYPES))]
    rows, columns, window = int(rng.choice([0, 1, 5, 8, 70])), int(rng.choice([1, 3, 16])), int(rng.choice([1, 2, 6]))
    window, count = min(window, rows), int(rng.choice([1, 2, 9, 40]))
    operand = rng.integers(-9, 9, (rows, columns)).astype(np.int32)
    i, matrix = f"tensor<{count}x1x{name}>", f"tensor<{rows}x{columns}xi32>"
    indices = hostile_indices(dtype, rows, (count, 1), rng)
    slices = f"tensor<{count}x{window}x{columns}xi32>"
    updates = rng.integers(-9, 9, (count, window, columns)).astype(np.int32)
    kind = rng.integers(4)
    if kind == 0:
        numbers = "offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1"
        op = f""""stablehlo.gather"(%a, %i) {{dimension_numbers = #stablehlo.gather<{numbers}>,
          slice_sizes = array<i64: {window}, {columns}>}} : ({matrix}, {i}) -> {slices}"""
        return _main({"a": matrix, "i": i}, op, slices), [operand, indices]
    if kind == 1:
        numbers = "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
        op = f""""stablehlo.scatter"(%a, %i, %u) ({{ ^bb0(%x: tensor<i32>, %y: tensor<i32>):
          %z = stablehlo.{rng.choice(["add", "maximum"])} %x, %y : tensor<i32>
          stablehlo.return %z : tensor<i32> }}) {{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}
          : ({matrix}, {i}, {slices}) -> {matrix}"""
        return _main({"a": matrix, "i": i, "u": slices}, op, matrix), [operand, indices, updates]
    start, part = f"tensor<{name}>", f"tensor<{window}x{columns}xi32>"
    starts = list(hostile_indices(dtype, rows, (2,), rng))
    if kind == 2:
        taken = f"sizes = [{window}, {columns}]"
        op = f"stablehlo.dynamic_slice %a, %i, %j, {taken} : ({matrix}, {start}, {start}) -> {part}"
        return _main({"a": matrix, "i": start, "j": start}, op, part), [operand, *map(np.array, starts)]
    op = f"stablehlo.dynamic_update_slice %a, %u, %i, %j : ({matrix}, {part}, {start}, {start}) -> {matrix}"
    types = {"a": matrix, "u": part, "i": start, "j": start}
    return _main(types, op, matrix), [operand, updates[0], *map(np.array, starts)]


def _main(types: dict[str, str], op: str, result: str) -> str:
    arguments = ", ".join(f"%{name}: {type}" for name, type in types.items())
    return f"func.func @main({arguments}) -> {result} {{\n  %r = {op}\n  return %r : {result}\n}}"
