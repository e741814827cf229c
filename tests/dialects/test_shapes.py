"""Inference on shapes."""

from math import prod

import pytest

from spmd.dialects.shapes import common_groups


@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 256, 256), (4, 256, 8, 32)), ((2, 1, 3), (6,)), ((), (1, 1)), ((6, 4), (3, 8)), ((1, 5, 1), (5,)), ((), ())],
)
def test_shapes_are_cut_into_stretches_of_as_many_elements(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    groups = list(common_groups(left, right))
    assert [d for theirs, _ in groups for d in theirs] == list(range(len(left)))
    assert [d for _, ours in groups for d in ours] == list(range(len(right)))
    for theirs, ours in groups:
        assert prod(left[d] for d in theirs) == prod(right[d] for d in ours)
