"""Affine forms over loop variables: arithmetic, bounds, division."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from spmd.analysis.affine import Affine, Split, dilated, divided

EXTENTS = {0: 3, 1: 4, 2: 5}


def value(form: Affine, point: dict[int, int]) -> int:
    return form.offset + sum(coefficient * point[variable] for variable, coefficient in form.terms)


def points() -> list[dict[int, int]]:
    return [dict(enumerate(place)) for place in itertools.product(*(range(size) for size in EXTENTS.values()))]


forms = st.builds(
    lambda offset, coefficients: sum(
        (Affine.of(variable).scaled(c) for variable, c in enumerate(coefficients)), Affine(offset)
    ),
    st.integers(-5, 5),
    st.lists(st.integers(-4, 4), min_size=3, max_size=3),
)


@given(forms, forms, st.integers(-3, 3))
def test_sums_and_multiples_are_those_of_the_values(x: Affine, y: Affine, factor: int) -> None:
    for point in points():
        assert value(x + y, point) == value(x, point) + value(y, point)
        assert value(x.scaled(factor), point) == factor * value(x, point)


@given(forms)
def test_bounds_are_reached_and_not_passed(form: Affine) -> None:
    values = [value(form, point) for point in points()]
    assert form.bounds(EXTENTS) == (min(values), max(values))


@given(st.integers(0, 9), st.lists(st.integers(0, 12), min_size=3, max_size=3), st.integers(1, 12))
def test_a_quotient_is_affine_or_is_refused(offset: int, coefficients: list[int], size: int) -> None:
    form = sum((Affine.of(v).scaled(c) for v, c in enumerate(coefficients)), Affine(offset))
    try:
        parts = divided(form, size, EXTENTS)
    except Split as split:
        assert (
            EXTENTS[split.variable] % split.size == 0 and 1 < split.size < EXTENTS[split.variable]
        ) or split.size == 1
        return
    if parts is not None:
        for point in points():
            assert divmod(value(form, point), size) == (value(parts[0], point), value(parts[1], point))


@given(forms, st.integers(1, 6))
def test_multiples_are_one_iteration_of_a_loop_or_are_refused(form: Affine, step: int) -> None:
    try:
        multiples = dilated(form, step, EXTENTS)
    except Split as split:
        assert EXTENTS[split.variable] % split.size == 0 and split.size == step < EXTENTS[split.variable]
        return
    if multiples is None:
        return
    quotient, iteration = multiples
    for point in points():
        chosen = iteration is None or point[iteration[0]] == iteration[1]
        assert chosen == (value(form, point) % step == 0)
        if chosen:
            assert value(form, point) == step * value(quotient, point)
