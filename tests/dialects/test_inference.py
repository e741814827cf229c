"""What result types follow from. Source: StableHLO specification, the constraints on results; bounded dynamism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spmd
from spmd.dialects import OPS
from spmd.dialects.checks import all_compatible, element_of
from spmd.dialects.core import InferenceError
from spmd.dialects.shapes import least_specific, most_specific
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Op, Value
from spmd.types import COMPLEX64, F32, F64, I1, I32, TensorType, Type
from tests.dialects.cases import OpCase
from tests.dialects.test_constraints import CASES


def _infer(name: str, operands: Sequence[Type], **attributes: Any) -> list[Type]:
    definition = OPS[f"stablehlo.{name}"]
    assert definition.inference is not None
    return definition.inference(Op(definition.name, map(Value, operands), (), attributes, definition=definition))


def _f32(*shape: int | None, bounds: tuple[int | None, ...] | None = None) -> TensorType:
    return TensorType(shape, F32, bounds)


shapes = st.lists(st.integers(0, 6), min_size=0, max_size=4).map(tuple)


@given(shapes, st.data())
def test_slice_gives_the_shape_that_numpy_gives(shape: tuple[int, ...], data: st.DataObject) -> None:
    limits = tuple(data.draw(st.integers(0, size)) for size in shape)
    starts = tuple(data.draw(st.integers(0, limit)) for limit in limits)
    strides = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    expected = np.empty(shape)[tuple(map(slice, starts, limits, strides))].shape
    inferred = _infer("slice", [_f32(*shape)], start_indices=starts, limit_indices=limits, strides=strides)
    assert inferred == [_f32(*expected)]


@given(shapes, st.data())
def test_transpose_reshape_and_reverse_keep_sizes(shape: tuple[int, ...], data: st.DataObject) -> None:
    permutation = tuple(data.draw(st.permutations(range(len(shape)))))
    expected = np.empty(shape).transpose(permutation).shape
    assert _infer("transpose", [_f32(*shape)], permutation=permutation) == [_f32(*expected)]
    assert _infer("reverse", [_f32(*shape)], dimensions=permutation) == [_f32(*shape)]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 2))
def test_concatenate_adds_sizes_up(sizes: list[int], other: int, dimension: int) -> None:
    def shape(size: int) -> tuple[int, ...]:
        return tuple(size if index == dimension else other for index in range(3))

    expected = np.concatenate([np.empty(shape(size)) for size in sizes], axis=dimension).shape
    inferred = _infer("concatenate", [_f32(*shape(size)) for size in sizes], dimension=dimension)
    assert inferred == [_f32(*expected)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), max_size=3))
def test_pad_counts_edges_and_gaps(padding: list[tuple[int, int, int, int]]) -> None:
    sizes, low, high, interior = ([entry[column] for entry in padding] for column in range(4))
    expected = [
        np.repeat(np.zeros(size), 1 + gap)[: size + max(size - 1, 0) * gap].size + before + after
        for size, before, after, gap in padding
    ]
    inferred = _infer(
        "pad",
        [_f32(*sizes), _f32()],
        edge_padding_low=tuple(low),
        edge_padding_high=tuple(high),
        interior_padding=tuple(interior),
    )
    assert inferred == [_f32(*expected)]


def test_dot_general_lays_out_batching_then_lhs_then_rhs() -> None:
    numbers = DotDimensionNumbersAttr((0,), (1,), (2,), (0,))
    inferred = _infer("dot_general", [_f32(2, 3, 4), _f32(4, 2, 5)], dot_dimension_numbers=numbers)
    assert inferred == [_f32(2, 3, 5)]


def test_element_types_of_complex_parts_and_comparisons() -> None:
    assert _infer("abs", [TensorType((2,), COMPLEX64)]) == [_f32(2)]
    assert _infer("imag", [TensorType((2,), COMPLEX64)]) == [_f32(2)]
    assert _infer("real", [_f32(2)]) == [_f32(2)]
    assert _infer("complex", [_f32(2), _f32(2)]) == [TensorType((2,), COMPLEX64)]
    assert _infer("compare", [_f32(2), _f32(None)], comparison_direction="LT") == [TensorType((2,), I1)]
    assert _infer("get_dimension_size", [_f32(None)], dimension=0) == [TensorType((), I32)]


def test_operands_say_together_what_neither_says_alone() -> None:
    assert _infer("add", [_f32(None, 3), _f32(2, None)]) == [_f32(2, 3)]
    assert most_specific([_f32(None, bounds=(5,)), _f32(None, bounds=(4,))]) == _f32(None, bounds=(4,))
    assert most_specific([_f32(None, bounds=(5,)), _f32(3)]) == _f32(3)


def test_branches_say_what_all_of_them_may_give() -> None:
    assert least_specific([_f32(2), _f32(None)]) == _f32(None)
    assert least_specific([_f32(3), _f32(None, bounds=(5,))]) == _f32(None, bounds=(5,))
    assert least_specific([_f32(7), _f32(None, bounds=(5,))]) == _f32(None, bounds=(7,))


def test_a_size_beyond_the_other_operands_bound_is_no_type() -> None:
    with pytest.raises(InferenceError):
        _infer("add", [_f32(6), _f32(None, bounds=(5,))])


def test_bounds_go_where_their_dimensions_go() -> None:
    bounded = _f32(None, 3, bounds=(5, None))
    assert _infer("transpose", [bounded], permutation=(1, 0)) == [_f32(3, None, bounds=(None, 5))]
    assert _infer("concatenate", [bounded, bounded], dimension=0) == [_f32(None, 3, bounds=(10, None))]
    assert _infer("concatenate", [bounded, _f32(2, 3)], dimension=0) == [_f32(None, 3, bounds=(7, None))]
    padded = _infer(
        "pad", [bounded, _f32()], edge_padding_low=(1, 0), edge_padding_high=(0, 0), interior_padding=(1, 0)
    )
    assert padded == [_f32(None, 3, bounds=(10, None))]


def test_set_dimension_size_bounds_the_dimension() -> None:
    size = TensorType((), I32)
    assert _infer("set_dimension_size", [_f32(4, 2), size], dimension=0) == [_f32(None, 2, bounds=(4, None))]


def test_a_broken_input_constraint_is_told_instead_of_a_type() -> None:
    with pytest.raises(InferenceError, match="0 < strides") as refused:
        _infer("slice", [_f32(4)], start_indices=(0,), limit_indices=(4,), strides=(0,))
    assert refused.value.label == "C4"
    with pytest.raises(InferenceError):
        _infer("add", [_f32(2), TensorType((2,), F64)])


@pytest.mark.parametrize("case", [case for case in CASES if OPS[f"stablehlo.{case.op}"].inference], ids=lambda c: c.op)
def test_results_follow_before_they_are_declared(case: OpCase) -> None:
    module = spmd.parse(case.text)
    op = next(op for op in module.walk() if op.name == f"stablehlo.{case.op}")
    undeclared = Op(
        op.name, op.operands, (), op.attributes, op.regions, definition=op.definition, discardable=op.discardable
    )
    assert op.definition is not None and op.definition.inference is not None
    inferred = op.definition.inference(undeclared)
    if case.op in ("dot_general", "convolution", "dynamic_conv"):  # the declared element type says how to accumulate
        inferred = [type.with_element_type(element_of(op.result.type)) for type in inferred]  # type: ignore[attr-defined]
    assert all_compatible(inferred, op.result_types), f"{inferred} for {op.result_types}"
