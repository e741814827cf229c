"""Rules of CHLO ops: elementwise ones, and top_k. Source: CHLO's dialect documentation."""

from __future__ import annotations

from partitioner.rules.core import Rule, replicated_rule, rule, shape_of
from partitioner.rules.custom_call import top_k
from partitioner.rules.elementwise import pointwise
from spmd.ir import Op

_POINTWISE = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bessel_i1e",
    "conj",
    "constant_like",
    "cosh",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "is_inf",
    "is_neg_inf",
    "is_pos_inf",
    "lgamma",
    "next_after",
    "polygamma",
    "sinh",
    "square",
    "tan",
    "zeta",
    "_asin_acos_kernel",
    "mulhi",
]
_BROADCAST = [
    "broadcast_add",
    "broadcast_and",
    "broadcast_atan2",
    "broadcast_compare",
    "broadcast_complex",
    "broadcast_divide",
    "broadcast_maximum",
    "broadcast_minimum",
    "broadcast_multiply",
    "broadcast_next_after",
    "broadcast_or",
    "broadcast_polygamma",
    "broadcast_power",
    "broadcast_remainder",
    "broadcast_select",
    "broadcast_shift_left",
    "broadcast_shift_right_arithmetic",
    "broadcast_shift_right_logical",
    "broadcast_subtract",
    "broadcast_xor",
    "broadcast_zeta",
]


@rule(*("chlo." + name for name in (*_POINTWISE, *_BROADCAST)), published=False)
def broadcasting(op: Op) -> Rule:
    """Elementwise where all shapes agree; anything that broadcasts is left whole."""
    shapes = {shape for value in (*op.operands, *op.results) if (shape := shape_of(value.type)) != ()}
    return pointwise(op) if len(shapes) <= 1 else replicated_rule(op)


rule("chlo.top_k", published=False)(top_k)
