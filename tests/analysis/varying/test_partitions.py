"""Which processes hold the same value: joins, selections and collectives, against what each process would hold."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectives.grid import ProcessGrid
from spmd import parse
from spmd.analysis.varying.groups import after, groups_of
from spmd.analysis.varying.partitions import Partition, Partitions

SIZE = 6
LABELS = st.lists(st.integers(-2, 3), min_size=SIZE, max_size=SIZE)


def same(part: Partition) -> list[list[bool]]:
    return np.equal.outer(part.labels, part.labels).tolist()


@given(LABELS)
def test_equal_partitions_are_one_object(labels: list[int]) -> None:
    partitions = Partitions(SIZE)
    renamed = [7 - 2 * label for label in labels]
    assert partitions.of(labels) is partitions.of(renamed)
    assert same(partitions.of(labels)) == np.equal.outer(labels, labels).tolist()


@given(LABELS, LABELS)
def test_what_two_values_make_is_the_same_where_both_are(left: list[int], right: list[int]) -> None:
    partitions = Partitions(SIZE)
    joined = partitions.join([partitions.of(left), partitions.of(right)])
    pairs = list(zip(left, right, strict=True))
    assert same(joined) == [[a == b for b in pairs] for a in pairs]


REGION = """({ ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %s = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %s : tensor<i32> })"""
COLLECTIVES = {
    "all_reduce": (f'"stablehlo.all_reduce"(%x) <{{replica_groups = GROUPS}}> {REGION}', "tensor<6xi32>"),
    "all_gather": (
        '"stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = GROUPS}>',
        "tensor<18xi32>",
    ),
    "all_to_all": (
        '"stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 3 : i64, '
        "replica_groups = GROUPS}>",
        "tensor<6xi32>",
    ),
    "reduce_scatter": (
        f'"stablehlo.reduce_scatter"(%x) <{{scatter_dimension = 0 : i64, replica_groups = GROUPS}}> {REGION}',
        "tensor<2xi32>",
    ),
    "collective_broadcast": ('"stablehlo.collective_broadcast"(%x) <{replica_groups = GROUPS}>', "tensor<6xi32>"),
}
GROUPS = "dense<[[0, 1, 4], [5, 3, 2]]> : tensor<2x3xi64>"


@given(st.sampled_from(sorted(COLLECTIVES)), st.lists(st.integers(0, 2), min_size=SIZE, max_size=SIZE))
def test_a_collective_keeps_what_is_the_same(name: str, values: list[int]) -> None:
    """Processes that are said to hold equal results do: for any values that are equal where operands are."""
    text, type = COLLECTIVES[name]
    op_text = f"%r = {text.replace('GROUPS', GROUPS)} : (tensor<6xi32>) -> {type}"
    module = parse(f"func.func @main(%x: tensor<6xi32>) {{ {op_text}\n return }}")
    op = module.functions[0].body.ops[0]
    partitions = Partitions(SIZE)
    part = after(op, groups_of(op, ProcessGrid(SIZE, 1), module), partitions.of(values), partitions.uniform, partitions)
    held = [np.random.default_rng(value).integers(0, 1 << 30, 6) for value in values]
    results = {}
    for group in ((0, 1, 4), (5, 3, 2)):
        arrays = [held[rank] for rank in group]
        for index, rank in enumerate(group):
            shares = [array.reshape(3, 2)[index] for array in arrays]
            results[rank] = {
                "all_reduce": sum(arrays),
                "all_gather": np.concatenate(arrays),
                "all_to_all": np.concatenate(shares),
                "reduce_scatter": sum(shares),
                "collective_broadcast": arrays[0],
            }[name]
    for one in range(SIZE):
        for other in range(SIZE):
            if part.labels[one] == part.labels[other]:
                assert np.array_equal(results[one], results[other])
    if len(set(values)) == 1 and name in ("all_reduce", "all_gather", "collective_broadcast"):
        assert part.is_uniform
