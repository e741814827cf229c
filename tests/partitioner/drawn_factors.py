"""Random ops whose tensors are cut along the op's factors alike, partial results folded by an explicit collective.

So Shardy's own passes leave a program: each op does to blocks what it does to whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from partitioner.rules import REDUCE, Rule, rule_of
from spmd import parse
from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.make import make_op
from spmd.ir import Function, Op
from spmd.ir.attributes import DictAttr, SymbolRefAttr
from tests.partitioner.drawing import Shape, integers, tensor
from tests.partitioner.drawn_axes import MESHES, Cuts, PrimePart, count, mesh_line, parts_of, refs, shuffled
from tests.partitioner.drawn_programs import Drawn

#: The arguments' shapes and element types, the op's text on %a0, %a1, ..., its result's shape, how it folds.
Example = tuple[list[tuple[Shape, str]], str, Shape, str]
_FOLDS = (("add", "sum"), ("maximum", "max"), ("minimum", "min"))


class _FactorDraw:
    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.sizes = (4, 8) if random.random() < 0.6 else (3, 4, 5, 6, 8)

    def below(self, limit: int) -> int:
        return int(self.random.integers(limit))

    def pick(self, entries):  # type: ignore[no-untyped-def]
        return entries[self.below(len(entries))]

    def shape(self, rank: int) -> Shape:
        return tuple(self.pick(self.sizes) for _ in range(rank))

    def order(self, count: int) -> list[int]:
        return [int(index) for index in self.random.permutation(count)]

    def some(self, entries: Sequence[int], share: float) -> list[int]:
        return [entry for entry in entries if self.random.random() < share]


def _dot_general(d: _FactorDraw) -> Example | None:
    batch, contracted = d.shape(d.below(3)), d.shape(1 + d.below(2))
    sides = []
    for _ in range(2):
        own = d.shape(d.below(3))
        sizes, order = (*batch, *contracted, *own), d.order(len(batch) + len(contracted) + len(own))
        bound = [order.index(index) for index in range(len(batch) + len(contracted))]
        sides.append(([sizes[index] for index in order], bound, sorted(set(range(len(order))) - set(bound))))
    shuffled_batch = d.order(len(batch))
    batching = [[bound[index] for index in shuffled_batch] for _, bound, _ in sides]
    contracting = [bound[len(batch) :] for _, bound, _ in sides]
    shapes = [tuple(sizes) for sizes, _, _ in sides]
    if prod(shapes[0]) * prod(shapes[1]) > 300_000:
        return None
    free = [sizes[index] for sizes, _, kept in sides for index in kept]
    result_shape = (*(batch[index] for index in shuffled_batch), *free)
    text = f"batching_dims = {batching[0]} x {batching[1]}, contracting_dims = {contracting[0]} x {contracting[1]}"
    types = f"({tensor(shapes[0])}, {tensor(shapes[1])}) -> {tensor(result_shape)}"
    return (
        [(shape, "f32") for shape in shapes],
        f"stablehlo.dot_general %a0, %a1, {text} : {types}",
        result_shape,
        "sum",
    )


def _reduce(d: _FactorDraw) -> Example:
    shape = d.shape(1 + d.below(3))
    chosen = d.some(range(len(shape)), 0.5) or [0]
    op, kind = d.pick(_FOLDS)
    result_shape = tuple(size for index, size in enumerate(shape) if index not in chosen)
    text = f"stablehlo.reduce(%a0 init: %{kind}) applies stablehlo.{op} across dimensions = {chosen}"
    return [(shape, "f32")], f"{text} : ({tensor(shape)}, tensor<f32>) -> {tensor(result_shape)}", result_shape, kind


class _Indexing:
    """The dimension numbers of a gather or scatter of any kind: batching, collapsed, whole and partial windows."""

    def __init__(self, d: _FactorDraw) -> None:
        rank = 1 + d.below(3)
        self.operand = d.shape(rank)
        order = d.order(rank)
        batching = sorted(order[: d.below(rank) if d.below(5) < 2 else 0])
        rest = [dimension for dimension in order if dimension not in batching]
        kinds = {dimension: d.pick(("collapsed", "whole", "one", "part")) for dimension in rest}
        self.collapsed = sorted(dimension for dimension in rest if kinds[dimension] == "collapsed")
        extents = {"collapsed": 1, "one": 1}
        self.sizes = [
            1
            if index in batching
            else extents.get(kinds[index], size if kinds[index] == "whole" else max(1, size // 2))
            for index, size in enumerate(self.operand)
        ]
        self.mapped = d.some([index for index in rest if kinds[index] != "whole"], 0.8)
        outer = [self.operand[index] for index in batching] + list(d.shape(d.below(3)))
        places = d.order(len(outer))
        looked_up = [outer[index] for index in places]
        self.vector = d.below(len(looked_up) + 1)
        indices = [*looked_up[: self.vector], len(self.mapped), *looked_up[self.vector :]]
        batch_places = [places.index(index) for index in range(len(batching))]
        if len(self.mapped) == 1 and d.below(3) == 0:
            self.vector, indices = len(looked_up), looked_up
        else:
            batch_places = [index + (index >= self.vector) for index in batch_places]
        self.indices = tuple(indices)
        self.batching, self.looked_up_batching = batching, batch_places
        windows = [index for index in range(rank) if index not in self.collapsed and index not in batching]
        self.windows = sorted(d.order(len(looked_up) + len(windows))[: len(windows)])
        window, batch = iter(windows), iter(looked_up)
        total = len(looked_up) + len(windows)
        self.slices = tuple(
            self.sizes[next(window)] if index in self.windows else next(batch) for index in range(total)
        )


def _gather(d: _FactorDraw) -> Example | None:
    n = _Indexing(d)
    numbers = (
        f"offset_dims = {n.windows}, collapsed_slice_dims = {n.collapsed}, operand_batching_dims = {n.batching}, "
        f"start_indices_batching_dims = {n.looked_up_batching}, start_index_map = {n.mapped}, "
        f"index_vector_dim = {n.vector}"
    )
    attributes = f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = {integers(n.sizes)}"
    types = f"({tensor(n.operand)}, {tensor(n.indices, 'i32')}) -> {tensor(n.slices)}"
    arguments = [(n.operand, "f32"), (n.indices, "i32")]
    text = f'"stablehlo.gather"(%a0, %a1) <{{{attributes}}}> : {types}'
    return (arguments, text, n.slices, "sum") if prod(n.slices) < 4000 else None


def _scatter(d: _FactorDraw) -> Example | None:
    n = _Indexing(d)
    op, kind = d.pick(_FOLDS)
    numbers = (
        f"update_window_dims = {n.windows}, inserted_window_dims = {n.collapsed}, input_batching_dims = {n.batching}, "
        f"scatter_indices_batching_dims = {n.looked_up_batching}, scatter_dims_to_operand_dims = {n.mapped}, "
        f"index_vector_dim = {n.vector}"
    )
    region = (
        "({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
        f"%z = stablehlo.{op} %x, %y : tensor<f32>\nstablehlo.return %z : tensor<f32>\n}})"
    )
    arguments = [(n.operand, "f32"), (n.indices, "i32"), (n.slices, "f32")]
    types = ", ".join(tensor(shape, element) for shape, element in arguments)
    text = f'"stablehlo.scatter"(%a0, %a1, %a2) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}>'
    result_shape = n.operand
    return (
        (arguments, f"{text} {region} : ({types}) -> {tensor(result_shape)}", result_shape, kind)
        if prod(n.slices) < 4000
        else None
    )


def _convolution(d: _FactorDraw) -> Example | None:
    spaces = range(1 + d.below(2))
    batch_groups, feature_groups = d.pick(((1, 1), (1, 1), (1, 2), (2, 1), (1, 4), (4, 1)))
    batch, features, kernels = (d.pick((4, 8)) for _ in range(3))
    size, extent, stride, low, high, base, step = (
        [least + d.below(most) for _ in spaces]
        for least, most in ((3, 6), (1, 3), (1, 2), (0, 3), (0, 3), (1, 2), (1, 2))
    )
    turned = ", ".join(d.pick(("true", "false")) for _ in spaces)
    out = [
        ((size[s] - 1) * base[s] + 1 + low[s] + high[s] - ((extent[s] - 1) * step[s] + 1)) // stride[s] + 1
        for s in spaces
    ]
    if min(out) < 1:
        return None
    layouts = []
    for names, sizes in (
        ("bf", (batch, features, *size)),
        ("io", (features // feature_groups, kernels, *extent)),
        ("bf", (batch // batch_groups, kernels, *out)),
    ):
        order, letters = d.order(len(sizes)), [*names, *map(str, spaces)]
        layouts.append((f"[{', '.join(letters[index] for index in order)}]", tuple(sizes[index] for index in order)))
    (lhs, lhs_shape), (rhs, rhs_shape), (out_layout, result_shape) = layouts
    pads = ", ".join(f"[{low[s]}, {high[s]}]" for s in spaces)
    window = f"stride = {stride}, pad = [{pads}], lhs_dilate = {base}, rhs_dilate = {step}, reverse = [{turned}]"
    text = f"stablehlo.convolution(%a0, %a1) dim_numbers = {lhs}x{rhs}->{out_layout}, window = {{{window}}}"
    counts = f"{{batch_group_count = {batch_groups} : i64, feature_group_count = {feature_groups} : i64}}"
    types = f"({tensor(lhs_shape)}, {tensor(rhs_shape)}) -> {tensor(result_shape)}"
    return [(lhs_shape, "f32"), (rhs_shape, "f32")], f"{text} {counts} : {types}", result_shape, "sum"


_EXAMPLES: tuple[Callable[[_FactorDraw], Example | None], ...] = (
    *(_dot_general, _dot_general, _reduce, _gather, _gather),
    *(_scatter, _scatter, _convolution, _convolution),
)


def draw_factors(seed: int) -> Drawn:
    """The program of `seed`: one op; its result is said to be unreduced, or not, where it is partial."""
    random = np.random.default_rng(seed)
    mesh = MESHES[int(random.integers(len(MESHES)))]
    d = _FactorDraw(random)
    example: Example | None = None
    while example is None:
        example = d.pick(_EXAMPLES)(d)
    arguments, op, result_shape, kind = example
    head = ", ".join(f"%a{index}: {tensor(shape, element)}" for index, (shape, element) in enumerate(arguments))
    starts = [f"%{name} = stablehlo.constant dense<{at}> : tensor<f32>" for name, at in _STARTS.items()]
    body = "\n".join([*starts, f"%r = {op}", f"return %r : {tensor(result_shape)}"])
    whole = f"func.func @main({head}) -> {tensor(result_shape)} {{\n{body}\n}}"
    module = parse(whole)
    parts = parts_of(mesh)
    function = module.function("main")
    _cut(d, function, function.body.ops[-2], kind, parts)
    sharded = str(module).replace("module {", f"module {{\n{mesh_line(mesh)}", 1)
    arrays = [
        (random.integers(-3, 4, shape) if element == "f32" else random.integers(-2, 10, shape)).astype(
            np.float32 if element == "f32" else np.int32
        )
        for shape, element in arguments
    ]
    return Drawn(sharded, whole, arrays, count(parts))


_STARTS = {"sum": "0.0", "max": "-1.0e30", "min": "1.0e30"}


def _cut(d: _FactorDraw, function: Function, op: Op, kind: str, parts: list[PrimePart]) -> None:
    """Gives `op` of `function`, and the arguments, the shardings of `parts` dealt out to its factors."""
    rule = rule_of(op)
    factors = _dealt(d, rule, parts)

    def sharding(mapping: Sequence[Sequence[int]], unreduced: Sequence[PrimePart] = ()) -> sdy.TensorSharding:
        cuts: Cuts = [[part for factor in dimension for part in factors[factor]] for dimension in mapping]
        dimensions = tuple(sdy.DimensionSharding(refs(cut)) for cut in cuts)
        return sdy.TensorSharding(SymbolRefAttr(("mesh",)), dimensions, (), refs(sorted(unreduced)), kind)

    told = dict(zip(op.operands, rule.operands, strict=True))
    entries = [DictAttr({sdy.SHARDING_NAME: sharding(told[argument])}) for argument in function.arguments]
    function.attributes = {**function.attributes, "arg_attrs": tuple(entries)}
    folded = sorted(part for factor in rule.of_kind(REDUCE) for part in factors[factor])
    (mapping,) = rule.results
    if any(dimension.axes for dimension in sharding(mapping).dimensions) or not folded or d.below(3):
        unreduced = folded if d.below(2) else ()
        op.discardable = {sdy.SHARDING_NAME: sdy.ShardingPerValue((sharding(mapping, unreduced),))}
    if folded:
        attributes = {"reduction_axes": sdy.AxisRefList(refs(folded)), "reduction_op": kind}
        fold = make_op("sdy.all_reduce", [op.result], None, {**attributes, "out_sharding": sharding(mapping)})
        function.body.ops.insert(-1, fold)
        function.body.terminator.operands = (fold.result,)


def _dealt(d: _FactorDraw, rule: Rule, parts: list[PrimePart]) -> list[list[PrimePart]]:
    """`parts` over the factors of a rule; a factor is cut where those before it in a dimension are cut to the end."""
    factors: list[list[PrimePart]] = [[] for _ in rule.sizes]
    for part in shuffled(d.random, parts):
        chosen = d.below(len(factors) + 1)
        if chosen < len(factors) and rule.sizes[chosen] > 1:
            factors[chosen].append(part)
    for mapping in rule.tensors:
        for dimension in mapping:
            for place, factor in enumerate(dimension if len(dimension) > 1 else ()):
                is_full = all(count(factors[major]) == rule.sizes[major] for major in dimension[:place])
                if rule.sizes[factor] % count(factors[factor]) or not is_full:
                    factors[factor].clear()
    return factors
