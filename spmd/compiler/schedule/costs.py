"""Cost of units: machine operations, and bytes loaded and stored, from nests or the types of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2, prod

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.constants import constant_array
from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, is_constant, walk
from spmd.analysis.scalar.functions import definition, expand
from spmd.analysis.windows import windows_of
from spmd.compiler.schedule.fusibility import is_fusible, iteration_shape, primitive_cost
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import FOLDED, Load, Nest, Stage
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Op, Value
from spmd.types import TensorType

#: Stride in bytes whose multiples map to few cache sets, and how many lines such an access pattern can keep.
_ALIASING, _WAYS = 1024, 64
_DIVISIONS = (Primitive.DIV, Primitive.SQRT)
#: Points are rounded up to this multiple: the lanes of a vector.
_LANES = 16
#: Primitives with floating-point latency, and the relative latency of others.
_FLOATING, _QUICK = (Primitive.ADD, Primitive.SUB, Primitive.MUL, *_DIVISIONS), 0.25
DOTS = ("stablehlo.dot_general", "stablehlo.dot")


@dataclass(frozen=True)
class Work:
    """An amount of one kind of work, on values of `bits`.

    elementwise  additions, or their equivalent
    division     divisions and square roots of floats
    function     additions, or their equivalent, within transcendental functions
    strided      loads with a large stride in the innermost loop
    aliased      strided loads that conflict in the cache
    indexed      gathered loads
    updated      scattered stores
    product      multiply-adds of matrices: `sizes` are (batch, rows, depth, columns), and `form` is "nn" if rows of
                 the right operand are contiguous, else "nt"; of convolutions "window", or "batch" if the batch is
                 contracted
    sort, fft, solve, random
                 comparisons; operations of the fast algorithm; multiply-adds; numbers
    """

    kind: str
    amount: float
    bits: int = 32
    sizes: tuple[int, ...] = ()
    form: str = ""


@dataclass(frozen=True)
class Cost:
    """Operations, and bytes loaded and stored, of running a unit once."""

    operations: int
    read: int
    written: int

    @property
    def bytes(self) -> int:
        return self.read + self.written

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.read + other.read, self.written + other.written)


def cost_of_unit(unit: Unit) -> Cost:
    """Return the cost of `unit`; for loops and branches, of operands and results alone."""
    if unit.is_view:
        return Cost(0, 0, 0)
    if not unit.fused:
        (op,) = unit.outputs
        operations = sum(int(work.amount) for work in work_of_unit(unit))
        return Cost(operations, sum(map(bytes_of, op.operands)), sum(map(bytes_of, op.results)))
    return cost_of_nests(nests_of(unit), [value for op in unit.outputs for value in op.results])


def cost_of_nests(nests: Sequence[Nest], results: Sequence[Value]) -> Cost:
    """Return the cost of running `nests`, which compute `results`, once."""
    written = sum(_written(nest, value) for nest in nests for value in results)
    return Cost(sum(map(_operations, nests)), sum(bytes_read(nests).values()), written)


def work_of_unit(unit: Unit, nests: Sequence[Nest] = ()) -> list[Work]:
    """Return the work of `unit` by kind; none for loops, branches and ops of no kind. `nests`: those of the unit, if
    known.
    """
    if unit.fused:
        stages = [(nest, stage) for nest in nests or nests_of(unit) for stage in nest.stages]
        return _merged(each for nest, stage in stages for each in _stage_work(nest, stage))
    return work_of_op(unit.outputs[0])


def work_of_op(op: Op) -> list[Work]:
    """Return the work of an op that is no loop nest; none if it has no kind."""
    return [_WORK[op.name](op)] if op.name in _WORK and _is_static(op) else []


def work_as_unit(op: Op) -> list[Work]:
    """Return the work of an op as a unit of its own."""
    if constant_array(op) is not None:
        return []
    if not is_fusible(op):
        return work_of_op(op)
    shape, reduced = iteration_shape(op)
    return work_of_unit(Unit(True, 0, shape, reduced, [op]))


def bytes_of(value: Value) -> int:
    """Return the bytes of a tensor of static shape; 0 for anything else."""
    type = value.type
    return type.nbytes if isinstance(type, TensorType) and type.is_static else 0


def bytes_read(nests: Sequence[Nest]) -> dict[Value, int]:
    """Return the bytes that `nests` load from each value in memory."""
    values = {load.value: None for nest in nests for load in nest.loads()}
    return {value: _read(nests, value) for value in values}


def _read(nests: Sequence[Nest], value: Value) -> int:
    """Return the bytes loaded from `value`: at most its size, and at most the number of loads."""
    reads = 0
    for nest in nests:
        for stage in nest.stages:
            for load in stage.loads():
                if load.value is value:
                    turns = prod(nest.extents[v] for v, _ in load.address.terms) if not load.address.dynamic else 0
                    reads += (turns or _points(nest, stage)) * max(1, load.type.bits // 8)
    return min(reads, bytes_of(value))


def _written(nest: Nest, value: Value) -> int:
    """Return the distinct bytes stored to `value`; an in-place update stores at most its points."""
    stores = [(store.address, store.code) for store in nest.stores() if store.value is value]
    updates = [
        (address, code) for stage in nest.stages for u in stage.updates for v, address, code in u.writes if v is value
    ]
    written = sum(_places(nest, address) * max(1, code.type.bits // 8) for address, code in (*stores, *updates))
    return min(written, bytes_of(value))


def _places(nest: Nest, address: Affine) -> int:
    """Return the number of distinct values of an address; dynamic ones are assumed distinct at each point."""
    computed = any(not is_constant(code) for code, _ in address.dynamic)
    return prod(nest.extents) if computed else prod(nest.extents[variable] for variable, _ in address.terms)


def _points(nest: Nest, stage: Stage) -> int:
    return prod(nest.extents[variable] for variable in stage.loops)


def _roots(stage: Stage) -> list[Expression]:
    """Return all expressions evaluated at each point of a stage."""
    roots: list[Expression] = [store.code for store in stage.stores]
    for reduction in stage.reductions:
        roots += [*reduction.inputs, *reduction.combine]
    for update in stage.updates:
        roots += [code for _, _, code in update.writes]
    return roots


def _operations(nest: Nest) -> int:
    return sum(
        _points(nest, stage) * sum(primitive_cost(node.primitive) for node in walk(_roots(stage)))
        for stage in nest.stages
    )


# --- kinds of work ---


def _merged(works: Iterable[Work]) -> list[Work]:
    """Return the work with amounts of equal kind and width added."""
    amounts: dict[tuple[str, int], float] = {}
    for each in works:
        amounts[each.kind, each.bits] = amounts.get((each.kind, each.bits), 0.0) + each.amount
    return [Work(kind, amount, bits) for (kind, bits), amount in amounts.items() if amount]


def _stage_work(nest: Nest, stage: Stage) -> Iterable[Work]:
    points, roots = -(-_points(nest, stage) // _LANES) * _LANES, _roots(stage)
    for node in walk(roots):
        bits = max(32, node.type.bits, *(operand.type.bits for operand in node.operands))
        if node.primitive.is_function:
            yield Work("function", points * function_cost(node.primitive, node.type), bits)
        elif node.primitive in _DIVISIONS:
            yield Work("division", points, bits)
        else:
            yield Work("elementwise", points * _work(node.primitive), bits)
    for leaf in stage.leaves:
        if isinstance(leaf, Load) and (kind := _kind_of_access(nest, stage, leaf)):
            yield Work(kind, points, max(32, leaf.type.bits))
    scattered = [w for update in stage.updates for w in update.writes if _is_scattered(nest, stage, w[1])]
    if scattered:
        yield Work("updated", points * len(scattered), 32)


def _work(primitive: Primitive) -> int:
    """Return the latency of `primitive`, in additions."""
    return 0 if primitive is Primitive.BITCAST else primitive_cost(primitive)


def _innermost(nest: Nest, stage: Stage) -> int | None:
    """Return the innermost loop with several iterations; None if there is one point."""
    return max((variable for variable in stage.loops if nest.extents[variable] > 1), default=None)


def _kind_of_access(nest: Nest, stage: Stage, load: Load) -> str:
    """Return the kind of a load's access pattern in the innermost loop; "" for contiguous and invariant loads."""
    if _is_scattered(nest, stage, load.address):
        return "indexed"
    innermost = _innermost(nest, stage)
    step = 0 if innermost is None else load.address.coefficient(innermost)
    if innermost is None or step in (0, 1):
        return ""
    far = step * max(1, load.type.bits // 8) % _ALIASING == 0 and nest.extents[innermost] > _WAYS
    return "aliased" if far else "strided"


def _is_scattered(nest: Nest, stage: Stage, address: Affine) -> bool:
    """Return whether an address has dynamic terms that vary in the innermost loop."""
    innermost = _innermost(nest, stage)
    return innermost is not None and any(_varies(stage, code, innermost) for code, _ in address.dynamic)


def _varies(stage: Stage, code: Expression, variable: Variable) -> bool:
    """Return whether `code` depends on a loop variable, also through loads."""
    for node in walk([code]):
        if node.primitive is Primitive.PARAMETER and isinstance(node.attribute, int) and node.attribute < FOLDED:
            leaf = stage.leaves[node.attribute]
            form = leaf.address if isinstance(leaf, Load) else leaf.form
            if form.coefficient(variable) or any(_varies(stage, inner, variable) for inner, _ in form.dynamic):
                return True
    return False


@cache
def function_cost(function: Primitive, type: MachineType) -> int:
    """Return the operations of the definition of `function`, without those for rare operands."""
    pending = list(expand([definition(function, type)]))
    seen: set[Expression] = set()
    cost = 0
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        cost += _work(node.primitive)
        pending += _usual(node)
    return cost


def _usual(node: Expression) -> Sequence[Expression]:
    """Return the operands of a node that are always evaluated."""
    rare = node.primitive is Primitive.RARELY
    return (node.operands[0], node.operands[2]) if rare else node.operands


# --- critical paths ---


def ready_time(nests: Sequence[Nest], ready: Mapping[Value, float]) -> float:
    """Return when the last value that `nests` compute at a point is ready, given `ready` times of its inputs.

    In latencies of a floating-point addition.
    """
    known, last = dict(ready), 0.0
    for stage in (stage for nest in nests for stage in nest.stages):
        read = [known.get(leaf.value, 0.0) if isinstance(leaf, Load) else 0.0 for leaf in stage.leaves]
        last = max(last, _critical_path(_roots(stage), lambda node: node.operands, read))
        known |= dict.fromkeys((store.value for store in stage.all_stores()), last)
    return last


def _critical_path(
    roots: Sequence[Expression], needed: Callable[[Expression], Sequence[Expression]], read: Sequence[float] = ()
) -> float:
    """Return the length of the critical path to `roots`; `read` is when each parameter is ready."""
    ways: dict[Expression, float] = {}
    for node in walk(roots, needed):
        began = max((ways[operand] for operand in needed(node)), default=0.0)
        if isinstance(node.attribute, int) and node.primitive is Primitive.PARAMETER and node.attribute < len(read):
            began = read[node.attribute]
        ways[node] = began + _latency(node)
    return max((ways[root] for root in roots), default=0.0)


def _latency(node: Expression) -> float:
    if node.primitive.is_function:
        return _function_latency(node.primitive, node.type)
    return _work(node.primitive) * (1.0 if node.primitive in _FLOATING else _QUICK)


@cache
def _function_latency(function: Primitive, type: MachineType) -> float:
    return _critical_path(expand([definition(function, type)]), _usual)


# --- ops that are no loop nest ---


def _is_static(op: Op) -> bool:
    types = [value.type for value in (*op.operands, *op.results)]
    return all(isinstance(type, TensorType) and type.is_static for type in types)


def _bits(op: Op) -> int:
    return 8 * op.results[0].tensor.dtype.itemsize


def _size(value: Value) -> int:
    return prod(value.tensor.static_shape)


def _product(op: Op) -> Work:
    lhs, rhs = (value.tensor.static_shape for value in op.operands)
    batching: tuple[int, ...] = ()
    contracting: tuple[int, ...] = (len(lhs) - 1,)
    form = "nn"
    if op.name == "stablehlo.dot_general":
        numbers = op["dot_dimension_numbers"]
        batching, contracting = numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions
        form = "nt" if len(rhs) - 1 in numbers.rhs_contracting_dimensions else "nn"
    batch, depth = prod(lhs[d] for d in batching), prod(lhs[d] for d in contracting)
    rows = prod(lhs) // max(1, batch * depth)
    columns = prod(rhs) // max(1, batch * depth)
    bits = 8 * op.operands[0].tensor.dtype.itemsize
    return Work("product", 2 * batch * rows * depth * columns, bits, (batch, rows, depth, columns), form)


def _convolution(op: Op) -> Work:
    numbers = op["dimension_numbers"]
    kernel = op.operands[1].tensor.static_shape
    features = kernel[numbers.kernel_output_feature_dimension]
    taps, columns = prod(kernel) // max(1, features), op.result.tensor.static_shape[numbers.output_feature_dimension]
    sizes = (1, _size(op.result) // max(1, columns), taps, columns)
    form = "window" if numbers.input_feature_dimension == len(kernel) - 1 else "batch"
    return Work("product", 2 * _size(op.result) * taps, _bits(op), sizes, form)


def _window(op: Op) -> Work:
    """Return the work of a reduce_window. A prefix sum costs one step per element, whatever the window size."""
    steps = 1 if windows_of(op).cumulative_axis() else prod(op["window_dimensions"])
    return Work("elementwise", _size(op.results[0]) * steps, _bits(op))


def _sort(op: Op) -> Work:
    size = _size(op.results[0])
    length = op.results[0].tensor.static_shape[op["dimension"]] if op.results[0].tensor.rank else 1
    return Work("sort", size * len(op.operands) * log2(max(2, length)), _bits(op))


def _top_k(op: Op) -> Work:
    return Work("sort", _size(op.operands[0]) * log2(max(2, op["k"])), _bits(op))


def _fft(op: Op) -> Work:
    size, length = _size(op.operands[0]), prod(int(n) for n in op["fft_length"])
    return Work("fft", 5 * size * log2(max(2, length)), _bits(op))


def _solve(op: Op) -> Work:
    depth = op.operands[0].tensor.static_shape[-1]
    return Work("solve", _size(op.results[0]) * depth, _bits(op))


def _random(op: Op) -> Work:
    return Work("random", _size(op.results[-1]), _bits(op))


_WORK: dict[str, Callable[[Op], Work]] = {
    **dict.fromkeys(DOTS, _product),
    "stablehlo.convolution": _convolution,
    "stablehlo.reduce_window": _window,
    "stablehlo.select_and_scatter": lambda op: Work("elementwise", 2 * _size(op.operands[0]), _bits(op)),
    "stablehlo.sort": _sort,
    "chlo.top_k": _top_k,
    "stablehlo.fft": _fft,
    "stablehlo.cholesky": _solve,
    "stablehlo.triangular_solve": _solve,
    "stablehlo.rng": _random,
    "stablehlo.rng_bit_generator": _random,
}
