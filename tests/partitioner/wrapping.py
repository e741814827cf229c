"""Programs whose parts are wrapped in calls, loops, branches and manual computations, which change nothing.

A part is a run of a function's ops. What it reads and what others read of it goes through the boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

import spmd
from spmd.dialects.make import make_function, make_op
from spmd.dialects.sdy_attributes import (
    AxisRef,
    DimensionSharding,
    ManualAxes,
    ShardingPerValue,
    TensorSharding,
)
from spmd.ir import Block, Function, Op, Region, Value, captured_values, copy_op
from spmd.ir.attributes import DenseAttr, SymbolRefAttr
from spmd.types import I1, I32, TensorType

Values = dict[Value, Value]


class Part:
    """A run of ops: the values from outside that it reads, and those that are read elsewhere."""

    def __init__(self, ops: Sequence[Op], behind: Sequence[Op]) -> None:
        self.ops = ops
        made = [result for op in ops for result in op.results]
        read = dict.fromkeys(value for op in ops for value in (*op.operands, *captured_values(op)))
        later = {value for op in behind for value in (*op.operands, *captured_values(op))}
        self.inputs = [value for value in read if value not in made]
        self.outputs = [value for value in made if value in later]

    def copy(self, values: Values) -> list[Op]:
        """Copies of the ops on `values`, which then maps their results, too."""
        return [copy_op(op, values) for op in self.ops]


Wrapper = Callable[["Wrapping", Part, Values], tuple[list[Op], Sequence[Value]]]


class Wrapping:
    """Wraps parts of one module; `functions` are those that calls need."""

    def __init__(self, module: spmd.Module, random: np.random.Generator) -> None:
        self.random, self.functions = random, [*module.functions]
        self.meshes = {op["sym_name"]: op["mesh"] for op in module.body.ops if op.name == "sdy.mesh"}

    def block(self, block: Block, wrappers: Mapping[str, Wrapper], values: Values) -> list[Op]:
        """The ops of `block` on `values`, of which a part at random is wrapped."""
        *ops, end = block.ops
        first = int(self.random.integers(len(ops)))
        last = first + 1 + int(self.random.integers(len(ops) - first))
        part = Part(ops[first:last], [*ops[last:], end])
        before = [copy_op(op, values) for op in ops[:first]]
        name = [*wrappers][int(self.random.integers(len(wrappers)))]
        wrapped, results = wrappers[name](self, part, values)
        values.update(zip(part.outputs, results, strict=True))
        return [*before, *wrapped, *(copy_op(op, values) for op in (*ops[last:], end))]


def wrap(module: spmd.Module, random: np.random.Generator, kinds: Sequence[str], depth: int = 2) -> spmd.Module:
    """`module` with parts of its entry function in wrappers of these kinds, some of them within others."""
    for _ in range(1 + int(random.integers(depth))):
        wrapping = Wrapping(module, random)
        chosen = {kind: WRAPPERS[kind] for kind in kinds}
        # A function that an earlier turn has made is a program of its own.
        number = int(random.integers(len(wrapping.functions)))
        function = wrapping.functions[number]
        if len(function.body.ops) > 1:
            body, values = Block([value.type for value in function.body.arguments]), Values()
            values.update(zip(function.body.arguments, body.arguments, strict=True))
            body.ops += wrapping.block(function.body, chosen, values)
            wrapping.functions[number] = _with_body(function, body)
        others = [op for op in module.body.ops if not isinstance(op, Function)]
        module = spmd.parse(str(module.with_ops([*others, *wrapping.functions])))
    return module


def _with_body(function: Function, body: Block) -> Function:
    clone = function.clone((), regions=[Region([body])])
    assert isinstance(clone, Function)
    return clone


def _call(wrapping: Wrapping, part: Part, values: Values) -> tuple[list[Op], Sequence[Value]]:
    body = Block([value.type for value in part.inputs])
    inner = dict(zip(part.inputs, body.arguments, strict=True))
    body.ops += part.copy(inner)
    body.ops.append(make_op("func.return", [inner[value] for value in part.outputs]))
    function = make_function(f"part{len(wrapping.functions)}", body)
    wrapping.functions.append(function)
    types = [value.type for value in part.outputs]
    call = make_op("func.call", [values[v] for v in part.inputs], types, {"callee": function.symbol})
    return [call], call.results


def _branch(wrapping: Wrapping, part: Part, values: Values) -> tuple[list[Op], Sequence[Value]]:
    """One branch of two or three; the others give zeros."""
    count = 2 + int(wrapping.random.integers(2))
    taken = int(wrapping.random.integers(count))
    index = _scalar(taken)
    regions = []
    for number in range(count):
        body = Block()
        if number == taken:
            inner = dict(values)
            body.ops += part.copy(inner)
            returned = [inner[value] for value in part.outputs]
        else:
            body.ops += (zeros := [_zeros(value.tensor) for value in part.outputs])
            returned = [op.result for op in zeros]
        body.ops.append(make_op("stablehlo.return", returned))
        regions.append(Region([body]))
    case = make_op("stablehlo.case", [index.result], [value.type for value in part.outputs], regions=regions)
    return [index, case], case.results


def _loop(wrapping: Wrapping, part: Part, values: Values) -> tuple[list[Op], Sequence[Value]]:
    """One turn of a loop, whose state begins with zeros; some of what is read is state, too."""
    carried = [value for value in part.inputs if wrapping.random.integers(2)]
    start, end = _scalar(0), _scalar(1)
    zeros = [_zeros(value.tensor) for value in part.outputs]
    state = [start.result, *(values[value] for value in carried), *(op.result for op in zeros)]
    types = [value.type for value in state]
    condition, body = Block(types), Block(types)
    is_first = make_op(
        "stablehlo.compare",
        [condition.arguments[0], end.result],
        [TensorType((), I1)],
        {"comparison_direction": "LT"},
    )
    condition.ops += [is_first, make_op("stablehlo.return", is_first.results)]
    inner = {**values, **dict(zip(carried, body.arguments[1:], strict=False))}
    one = _scalar(1)
    following = make_op("stablehlo.add", [body.arguments[0], one.result], [one.result.type])
    body.ops += [one, following, *part.copy(inner)]
    kept = body.arguments[1 : 1 + len(carried)]
    returned = [following.result, *kept, *(inner[value] for value in part.outputs)]
    body.ops.append(make_op("stablehlo.return", returned))
    loop = make_op("stablehlo.while", state, types, regions=[Region([condition]), Region([body])])
    return [start, end, *zeros, loop], loop.results[1 + len(carried) :]


def _manual(wrapping: Wrapping, part: Part, values: Values) -> tuple[list[Op], Sequence[Value]]:
    """A computation over no axis, or over some where the part names none: each device has what it has outside."""
    name, mesh = next(iter(wrapping.meshes.items()))
    names_axes = any(word in str(op) for op in part.ops for word in ("sdy.", "call @"))
    axes = [axis.name for axis in mesh.axes if not names_axes and wrapping.random.integers(2)]
    body = Block([value.type for value in part.inputs])
    inner = dict(zip(part.inputs, body.arguments, strict=True))
    body.ops += part.copy(inner)
    body.ops.append(make_op("sdy.return", [inner[value] for value in part.outputs]))

    def opened(value: Value) -> TensorSharding:
        dimensions = tuple(DimensionSharding((), is_closed=bool(axes)) for _ in range(value.tensor.rank))
        return TensorSharding(SymbolRefAttr((name,)), dimensions, tuple(AxisRef(axis) for axis in axes))

    attributes = {
        "in_shardings": ShardingPerValue(tuple(map(opened, part.inputs))),
        "out_shardings": ShardingPerValue(tuple(map(opened, part.outputs))),
        "manual_axes": ManualAxes(tuple(axes)),
    }
    operands, types = [values[value] for value in part.inputs], [value.type for value in part.outputs]
    computation = make_op("sdy.manual_computation", operands, types, attributes, [Region([body])])
    return [computation], computation.results


#: How parts are wrapped, by name.
WRAPPERS: Mapping[str, Wrapper] = {"call": _call, "case": _branch, "while": _loop, "manual": _manual}


def _scalar(value: int) -> Op:
    type = TensorType((), I32)
    return make_op("stablehlo.constant", (), [type], {"value": DenseAttr(np.array(value, np.int32), type)})


def _zeros(type: TensorType) -> Op:
    value = DenseAttr(np.broadcast_to(np.zeros((), type.dtype), type.static_shape), type)
    return make_op("stablehlo.constant", (), [type], {"value": value})
