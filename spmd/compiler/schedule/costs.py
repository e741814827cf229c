"""What a unit costs: machine operations, and bytes to and from memory. Read from its nests, or from its op's types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2, prod

from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, walk
from spmd.analysis.scalar.functions import definition, expand
from spmd.analysis.windows import windows_of
from spmd.compiler.schedule.forms import primitive_cost
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Load, Nest, Stage
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Op, Value
from spmd.types import TensorType

#: Bytes whose multiples fall on few sets of a cache, and how many places of it such a walk may use again.
_ALIASING, _WAYS = 1024, 64
DOTS = ("stablehlo.dot_general", "stablehlo.dot")


@dataclass(frozen=True)
class Work:
    """So much of one kind of work, on values of `bits`.

    elementwise  additions, or what takes as long
    function     the same inside of functions such as exponentials
    strided      numbers that a loop reads from places far from each other
    aliased      the same, at distances by which caches keep few of them
    indexed      numbers at places that are computed
    product      multiplications and additions of matrices: `sizes` are (batch, rows, depth, columns), and `form` is
                 "nn" where neighbours in the right one's rows are neighbours in memory, "nt" otherwise
    convolution, sort, fft, solve, random
                 multiplications and additions; comparisons; operations of the fast algorithm; multiplications and
                 additions; numbers
    """

    kind: str
    amount: float
    bits: int = 32
    sizes: tuple[int, ...] = ()
    form: str = ""


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of running a unit once."""

    operations: int
    read: int
    written: int

    @property
    def bytes(self) -> int:
        return self.read + self.written

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.read + other.read, self.written + other.written)


def cost_of_unit(unit: Unit) -> Cost:
    """The cost of `unit`; of loops and branches, that of their operands and results alone."""
    if not unit.fused:
        (op,) = unit.roots
        operations = sum(int(work.amount) for work in work_of_unit(unit))
        return Cost(operations, sum(map(bytes_of, op.operands)), sum(map(bytes_of, op.results)))
    return cost_of_nests(nests_of(unit), [value for op in unit.roots for value in op.results])


def cost_of_nests(nests: Sequence[Nest], results: Sequence[Value]) -> Cost:
    """The cost of running `nests` once, which write `results`."""
    written = sum(_written(nest, value) for nest in nests for value in results)
    return Cost(sum(map(_operations, nests)), sum(bytes_read(nests).values()), written)


def work_of_unit(unit: Unit, nests: Sequence[Nest] = ()) -> list[Work]:
    """The work of `unit` by kind; of loops and branches, and of what has no kind, none. `nests`: its own."""
    if unit.fused:
        stages = [(nest, stage) for nest in nests or nests_of(unit) for stage in nest.stages]
        return _merged(each for nest, stage in stages for each in _stage_work(nest, stage))
    (op,) = unit.roots
    return [_WORK[op.name](op)] if op.name in _WORK and _is_static(op) else []


def bytes_of(value: Value) -> int:
    """Bytes of a tensor of known shape; 0 of anything else."""
    type = value.type
    return type.nbytes if isinstance(type, TensorType) and type.is_static else 0


def bytes_read(nests: Sequence[Nest]) -> dict[Value, int]:
    """The bytes that `nests` read of each value that lies in memory."""
    values = {load.value: None for nest in nests for load in nest.loads()}
    return {value: _read(nests, value) for value in values}


def _read(nests: Sequence[Nest], value: Value) -> int:
    """Bytes read of `value`: no more than it has, and no more than there are reads."""
    reads = 0
    for nest in nests:
        for stage in nest.stages:
            for load in stage.loads():
                if load.value is value:
                    turns = prod(nest.extents[v] for v, _ in load.address.terms) if not load.address.dynamic else 0
                    reads += (turns or _points(nest, stage)) * max(1, load.type.bits // 8)
    return min(reads, bytes_of(value))


def _written(nest: Nest, value: Value) -> int:
    stored = any(store.value is value for store in nest.stores())
    if stored:
        return bytes_of(value)
    updates = [w for stage in nest.stages for u in stage.updates for w in u.writes if w[0] is value]
    return sum(prod(nest.extents) * max(1, code.type.bits // 8) for _, _, code in updates)


def _points(nest: Nest, stage: Stage) -> int:
    return prod(nest.extents[variable] for variable in stage.loops)


def _roots(stage: Stage) -> list[Expression]:
    """All that a stage computes at each of its points."""
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
    """Work of one kind and width as one entry."""
    amounts: dict[tuple[str, int], float] = {}
    for each in works:
        amounts[each.kind, each.bits] = amounts.get((each.kind, each.bits), 0.0) + each.amount
    return [Work(kind, amount, bits) for (kind, bits), amount in amounts.items() if amount]


def _stage_work(nest: Nest, stage: Stage) -> Iterable[Work]:
    points = _points(nest, stage)
    for node in walk(_roots(stage)):
        bits = max(32, node.type.bits)
        if node.primitive.is_function:
            yield Work("function", points * function_cost(node.primitive, node.type), bits)
        else:
            yield Work("elementwise", points * primitive_cost(node.primitive), bits)
    for leaf in stage.leaves:
        if isinstance(leaf, Load) and (kind := _kind_of_access(nest, stage, leaf)):
            yield Work(kind, points, max(32, leaf.type.bits))
    for update in stage.updates:
        yield Work("indexed", points * len(update.writes), 32)


def _kind_of_access(nest: Nest, stage: Stage, load: Load) -> str:
    """How a load goes over memory, turn by turn of the innermost loop; nothing for neighbours and single numbers."""
    if load.address.dynamic:
        return "indexed"
    loops = [variable for variable in stage.loops if nest.extents[variable] > 1]
    step = load.address.coefficient(max(loops)) if loops else 0
    if step in (0, 1):
        return ""
    far = step * max(1, load.type.bits // 8) % _ALIASING == 0 and nest.extents[max(loops)] > _WAYS
    return "aliased" if far else "strided"


@cache
def function_cost(function: Primitive, type: MachineType) -> int:
    """Operations of the definition of `function`, without those for operands that are rare."""
    pending = list(expand([definition(function, type)]))
    seen: set[Expression] = set()
    cost = 0
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        cost += primitive_cost(node.primitive)
        rare = node.primitive is Primitive.RARELY
        pending += (node.operands[0], node.operands[2]) if rare else node.operands
    return cost


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
    return Work("product", 2 * batch * rows * depth * columns, _bits(op), (batch, rows, depth, columns), form)


def _convolution(op: Op) -> Work:
    numbers = op["dimension_numbers"]
    kernel = op.operands[1].tensor.static_shape
    taps = prod(kernel) // max(1, kernel[numbers.kernel_output_feature_dimension])
    return Work("convolution", 2 * _size(op.result) * taps, _bits(op))


def _window(op: Op) -> Work:
    """A running total is a step an element, however long its window is."""
    steps = 1 if windows_of(op).running_axis() else prod(op["window_dimensions"])
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
