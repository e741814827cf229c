"""Integers in other widths: a constant stays one, with the bits that the instruction would give."""

import pytest

from spmd.analysis.scalar import build
from spmd.analysis.scalar.expression import I1, I8, I32, I64, MachineType, constant, parameter


@pytest.mark.parametrize(
    ("value", "type", "wide", "signed", "unsigned"),
    [
        (-128, I8, I32, -128, 128),
        (-1, I8, I64, -1, 255),
        (127, I8, I64, 127, 127),
        (1, I1, I8, -1, 1),
        (0, I1, I8, 0, 0),
    ],
)
def test_a_constant_is_extended_by_its_sign_or_by_zeros(
    value: int, type: MachineType, wide: MachineType, signed: int, unsigned: int
) -> None:
    assert build.sign_extend(constant(value, type), wide) is constant(signed, wide)
    assert build.zero_extend(constant(value, type), wide) is constant(unsigned, wide)


@pytest.mark.parametrize(("value", "low"), [(300, 44), (-1, -1), (128, -128), (1 << 40, 0)])
def test_a_constant_keeps_its_low_bits(value: int, low: int) -> None:
    assert build.truncate(constant(value, I64), I8) is constant(low, I8)


def test_what_is_not_known_is_converted_while_running() -> None:
    x = parameter(0, I8)
    assert build.truncate(x, I8) is x and build.zero_extend(x, I32).operands == (x,)
