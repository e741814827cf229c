"""Shapes, layouts and literals: their text, and their places in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spmd import types as t
from spmd.builder import F32, S32, Layout, Literal, LiteralUtil, PaddingValue, PrimitiveType, Shape, ShapeUtil
from tests.builder.support import equal, f32


@pytest.mark.parametrize(
    "text",
    ["f32[2,3]{1,0}", "f32[2,3]{0,1}", "pred[]", "c64[1]{0}", "(f32[], s32[4]{0})", "()",
     "((bf16[2,2]{0,1}), token[])", "s32[<=4,3]{1,0}", "f8e4m3fn[0]{0}", "u4[7]{0}"],
)  # fmt: skip
def test_a_shape_prints_as_it_is_read(text: str) -> None:
    assert str(Shape(text)) == text


def test_the_layout_is_row_major_unless_given() -> None:
    assert str(Shape("f32[2,3]")) == "f32[2,3]{1,0}"
    assert str(Shape.array_shape(F32, [2, 3])) == "f32[2,3]{1,0}"
    assert str(Shape.array_shape(F32, [2, 3], [0, 1])) == "f32[2,3]{0,1}"
    assert Shape("(f32[2,3]{0,1}, s32[])").brief == "(f32[2,3], s32[])"


def test_what_a_reader_skips() -> None:
    assert str(Shape("( f32[2, 3]{0,1:T(8,128)S(1)}, /*index=1*/s32[] )")) == "(f32[2,3]{0,1}, s32[])"


@pytest.mark.parametrize(
    "text", ["f32", "f32[", "f33[2]", "f32[2]{0}x", "(f32[]", "f32[a]", "f32[2,3]{1,1}", "f32[2]{1,0}", "f32[-1]"]
)
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(ValueError):
        Shape.parse(text)


def test_shapes_of_other_layouts_are_compatible_not_equal() -> None:
    one, two = Shape("f32[2,3]{1,0}"), Shape("f32[2,3]{0,1}")
    assert one == Shape("f32[2,3]")
    assert hash(one) == hash(Shape("f32[2,3]"))
    assert one != two
    assert one.compatible(two)
    assert not one.compatible(Shape("f32[3,2]"))
    assert Shape("(f32[2,3]{1,0})").compatible(Shape("(f32[2,3]{0,1})"))


def test_questions_to_a_shape() -> None:
    shape = Shape.array_shape(np.float32, [2, 3], [0, 1])
    assert (shape.rank(), shape.size(), shape.dimensions(), shape.dimensions(1)) == (2, 6, (2, 3), 3)
    assert shape.element_type() == np.float32
    assert shape.xla_element_type() is F32
    assert shape.minor_to_major() == (0, 1)
    assert shape.is_array()
    assert shape.is_static()
    assert Shape("f32[2]").layout() == Layout([0])
    both = Shape.tuple_shape([shape, Shape.tuple_shape([Shape.token_shape(), Shape.scalar_shape("s32")])])
    assert both.leaf_count() == 3
    assert [str(leaf) for leaf in both.leaves()] == ["f32[2,3]{0,1}", "token[]", "s32[]"]
    assert ShapeUtil.MakeTupleShape([ShapeUtil.MakeShape(S32, [])]) == Shape("(s32[])")
    assert ShapeUtil.MakeShapeWithLayout(F32, [2, 3], [0, 1]) == shape
    assert ShapeUtil.MakeTokenShape() == Shape.token_shape().with_major_to_minor_layout_if_absent()
    assert Shape("s32[<=4]").is_dynamic()


def test_shapes_are_types() -> None:
    for shape in (Shape("(f32[2,3], (pred[], token[]))"), Shape("s4[<=4,3]"), Shape("c128[]")):
        assert Shape.of(shape.ir_type) == shape
    assert Shape("s32[<=4,3]").tensor is t.TensorType((None, 3), t.I32, (4, None))
    with pytest.raises(ValueError, match="unbounded"):
        Shape.of(t.TensorType((None,), t.F32))


def test_primitive_types_are_element_types() -> None:
    arrays = [primitive for primitive in PrimitiveType if primitive.value not in ("tuple", "token", "opaque")]
    assert [PrimitiveType.of(primitive.element_type) for primitive in arrays] == arrays
    assert PrimitiveType.of("F32") is PrimitiveType.of(np.float32) is PrimitiveType.of("f32") is F32
    assert PrimitiveType.of(ml_dtypes.bfloat16).value == "bf16"
    with pytest.raises(ValueError, match="no type of array elements"):
        _ = PrimitiveType.TOKEN.dtype


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(([0, 0],), "no ordering"), (([1, 0], [3]), "1 padded_dimensions"), (([0], (), 1.0), "without padded_dimensions")],
)
def test_layouts_that_are_none(arguments: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Layout(*arguments)
    with pytest.raises(ValueError, match="smaller width 1"):
        Shape.array_shape(F32, [2], Layout([0], [1]))


@pytest.mark.parametrize(
    ("value", "number"),
    [(None, 0), (PaddingValue.ZERO_PAD, 0), (PaddingValue.ONE_PAD, 1), (PaddingValue.LOWEST_PAD, -(2**31)),
     (PaddingValue.HIGHEST_PAD, 2**31 - 1), (7, 7)],
)  # fmt: skip
def test_padding_values(value: PaddingValue | float | None, number: int) -> None:
    equal(Layout([0], [3], value).to_memory(np.array([5, 6], np.int32)), [5, 6, number])


@given(st.data())
def test_memory_and_back(data: st.DataObject) -> None:
    array = data.draw(hnp.arrays(np.int16, hnp.array_shapes(min_dims=0, max_dims=4, max_side=4)))
    order = data.draw(st.permutations(range(array.ndim)))
    padded = [size + data.draw(st.integers(0, 2)) for size in array.shape]
    for layout in (Layout(order), Layout(order, padded, -1)):
        literal = Literal(array, layout=layout)
        assert literal.memory().ndim == 1
        assert Literal.from_memory(literal.memory(), literal.shape()) == literal


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(x) for x in ("?", "i1", "u8", "i8", "f2", "f4", "f8", "c8", "c16")]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        elements={},
    )
)
def test_a_literal_reads_back_from_its_text(array: np.ndarray[Any, Any]) -> None:
    literal = Literal(array)
    assert Literal.parse(str(literal)) == literal


def test_the_text_of_literals() -> None:
    assert str(Literal(np.array([[1, 2], [3, 4]], np.int32))) == "s32[2,2] { { 1, 2 }, { 3, 4 } }"
    assert str(Literal(f32([1.5, np.nan, -np.inf]))) == "f32[3] {1.5, nan, -inf}"
    assert str(Literal(True)) == "pred[] 1"
    assert str(Literal((1.0, [2]))) == "(f32[] 1, s32[1] {2})"
    assert Literal.parse("s32[3]{0, 5, 6}") == Literal([0, 5, 6])


def test_what_python_numbers_become() -> None:
    values = [1, 2**40, 1.5, True, 1j, [np.float64(2)], np.float16(1)]
    texts = ["s32[]", "s64[]", "f32[]", "pred[]", "c64[]", "f64[1]", "f16[]"]
    assert [Literal(value).shape().brief for value in values] == texts
    assert LiteralUtil.CreateR0(2, "f64") == Literal(np.float64(2))
    assert LiteralUtil.CreateR1([1.0]) == Literal([1.0])
    assert LiteralUtil.CreateR2([[True]]) == Literal([[True]])
    with pytest.raises(ValueError, match="must have rank 0, got 1"):
        LiteralUtil.CreateR0([1])
    with pytest.raises(ValueError, match="no array of numbers"):
        Literal("text")
    with pytest.raises(ValueError, match=r"dimensions \[2\] for the shape f32\[3\]"):
        Literal([1, 2], Shape("f32[3]"))


@pytest.mark.parametrize("type", ["f32", "bf16", "s8", "u4", "f8e4m3fn", "f8e8m0fnu", "pred"])
def test_extreme_values_of_a_type(type: str) -> None:
    low, high = LiteralUtil.MinValue(type).array(), LiteralUtil.MaxValue(type).array()
    assert low.dtype == high.dtype == PrimitiveType.of(type).dtype
    zero, one = LiteralUtil.Zero(type).array(), LiteralUtil.One(type).array()
    if type != "f8e8m0fnu":  # which has no zero
        assert low <= zero < high or type == "pred"
        assert zero + one == one
    assert low < high
