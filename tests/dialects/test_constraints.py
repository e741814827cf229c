"""Every constraint that the StableHLO specification labels is checked, and reported with its label.

`LABELS` counts the constraints of each op's section of the specification (C1, C2, ... up to the number).
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

import spmd
from spmd.compiler.pipeline.verify import warnings
from spmd.dialects import OPS
from spmd.dialects.structs import DotAlgorithmAttr
from spmd.errors import SpmdError
from spmd.ir import Op, Value
from spmd.support.editions import EARLIER_EDITION
from spmd.types import BF16, F32
from tests.dialects import collective_cases, contraction_cases, elementwise_cases
from tests.dialects.cases import OpCase, Unbreakable, read_cases

LABELS = {
    "abs": 2, "add": 7, "all_gather": 6, "all_reduce": 7, "all_to_all": 9, "and": 1, "async_done": 1,
    "async_start": 4, "atan2": 1, "batch_norm_grad": 5, "batch_norm_inference": 7, "batch_norm_training": 7,
    "bitcast_convert": 2, "broadcast_in_dim": 6, "case": 4, "cbrt": 1, "ceil": 1, "cholesky": 3, "clamp": 4,
    "collective_broadcast": 6, "collective_permute": 5, "collective_reduce": 4, "compare": 3, "complex": 3,
    "composite": 4, "concatenate": 6, "constant": 1, "convert": 1, "convolution": 34, "cosine": 1,
    "count_leading_zeros": 1, "divide": 1, "dot_general": 24, "dynamic_broadcast_in_dim": 10, "dynamic_conv": 34,
    "dynamic_gather": 14, "dynamic_iota": 2, "dynamic_pad": 4, "dynamic_reshape": 4, "dynamic_slice": 5,
    "dynamic_update_slice": 6, "exponential": 1, "exponential_minus_one": 1, "fft": 5, "floor": 1, "gather": 23,
    "get_dimension_size": 1, "get_tuple_element": 2, "if": 3, "imag": 2, "infeed": 3, "iota": 1, "is_finite": 1,
    "log": 1, "log_plus_one": 1, "logistic": 1, "map": 4, "maximum": 1, "minimum": 1, "multiply": 1, "negate": 1,
    "not": 1, "optimization_barrier": 1, "or": 1, "pad": 4, "popcnt": 1, "power": 1, "real": 2, "recv": 5,
    "reduce": 8, "reduce_precision": 3, "reduce_scatter": 9, "reduce_window": 16, "remainder": 1, "reshape": 3,
    "reverse": 3, "rng": 3, "rng_bit_generator": 2, "round_nearest_afz": 1, "round_nearest_even": 1, "rsqrt": 1,
    "scatter": 25, "select": 2, "select_and_scatter": 12, "send": 5, "shift_left": 1, "shift_right_arithmetic": 1,
    "shift_right_logical": 1, "sign": 1, "sine": 1, "slice": 5, "sort": 5, "sqrt": 1, "subtract": 1, "tan": 1,
    "tanh": 1, "transpose": 4, "triangular_solve": 4, "tuple": 1, "uniform_dequantize": 2, "uniform_quantize": 2,
    "while": 3, "xor": 1,
}  # fmt: skip

CASES: list[OpCase] = [
    *elementwise_cases.CASES,
    *contraction_cases.CASES,
    *collective_cases.CASES,
    *read_cases("data_movement"),
    *read_cases("indexing"),
    *read_cases("reduction"),
    *read_cases("dynamism"),
    *read_cases("control_flow"),
]
#: Constraints that an attribute states of itself (spmd/dialects/structs.py).
OF_ATTRIBUTES = {"dot_general": ("C22", "C23", "C24")}
BREAKS = [
    (case, label) for case in CASES for label, change in case.breaks.items() if not isinstance(change, Unbreakable)
]


#: What StableHLO's own verifier takes: told as a warning.
MEANINGFUL = {("compare", "C3"), ("all_gather", "C5"), ("dot_general", "C13")}
#: The same, where nothing could be computed: not compiled.
MEANINGLESS = {
    ("rng_bit_generator", "C2"), ("dynamic_conv", "C25"), ("dynamic_conv", "C26"), ("dynamic_iota", "C2"),
    ("dynamic_broadcast_in_dim", "C7"), ("reduce_scatter", "C1"),
    *((op, f"C{number}") for op in ("send", "recv") for number in range(1, 5)),
}  # fmt: skip


def _name(entry: tuple[OpCase, str]) -> str:
    return f"{entry[0].op}-{entry[1]}"


def test_every_label_is_broken_by_one_program_or_by_none() -> None:
    expected = Counter(f"{op} C{number}" for op, count in LABELS.items() for number in range(1, count + 1))
    assert Counter(f"{case.op} {label}" for case in CASES for label in case.breaks) == expected


def test_every_label_is_checked_where_the_op_is_declared() -> None:
    excused = {(case.op, label) for case in CASES for label, why in case.breaks.items() if isinstance(why, Unbreakable)}
    unchecked = [
        f"{op} C{number}"
        for op, count in LABELS.items()
        for number in range(1, count + 1)
        if f"C{number}" not in (*OPS[f"stablehlo.{op}"].labels, *OF_ATTRIBUTES.get(op, ()))
        and (op, f"C{number}") not in excused
    ]
    assert unchecked == []


def test_no_check_has_a_label_that_the_specification_does_not_have() -> None:
    for op, count in LABELS.items():
        known = {f"C{number}" for number in range(1, count + 1)}
        labels = {label for label in OPS[f"stablehlo.{op}"].labels if label[0] == "C"}
        earlier = {label for label in labels if label.endswith(f" of {EARLIER_EDITION}")}
        assert labels - earlier <= known, op
        assert not earlier or op == "recv"  # of whose results the newest edition states no constraint


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_a_sound_op_is_accepted(case: OpCase) -> None:
    spmd.parse(case.text)


@pytest.mark.sampled(89)
@pytest.mark.parametrize("entry", BREAKS, ids=_name)
def test_a_broken_constraint_is_refused_with_its_label(entry: tuple[OpCase, str]) -> None:
    case, label = entry
    if (case.op, label) in MEANINGFUL | MEANINGLESS:
        module = spmd.parse(case.broken(label))
        (warning,) = warnings(module)
        assert warning.op == f"stablehlo.{case.op}"
        assert label in warning.label.split(", ")
        if (case.op, label) in MEANINGLESS:
            with pytest.raises(spmd.CompileError) as failed:
                spmd.compile(module, function=module.functions[0].symbol)
            assert str(failed.value.diagnostics[0]) == str(warning)
        return
    with pytest.raises(SpmdError) as refused:
        spmd.parse(case.broken(label))
    first = refused.value.diagnostics[0]
    if label in OF_ATTRIBUTES.get(case.op, ()):
        assert f"({label})" in first.headline
        return
    assert first.op == f"stablehlo.{case.op}"
    assert label in first.label.split(", "), first.headline


#: Ops that take tokens beside tensors.
_TAKE_TOKENS = {"tuple", "optimization_barrier", "while", "composite"}


@pytest.mark.sampled(31)
@pytest.mark.parametrize(
    ("case", "index"),
    [
        (case, index)
        for case in {case.op: case for case in CASES if case.operands is None and case.op not in _TAKE_TOKENS}.values()
        for index in range(len(case.operand_types))
    ],
    ids=lambda value: value.op if isinstance(value, OpCase) else f"operand {value}",
)
def test_an_operand_of_another_kind_is_refused_with_its_label(case: OpCase, index: int) -> None:
    definition = OPS[f"stablehlo.{case.op}"]
    takes_token = case.operand_types[index] == "!stablehlo.token"
    with pytest.raises(spmd.VerificationError) as refused:
        spmd.parse(case.with_operand(index, "tensor<f32>" if takes_token else "!stablehlo.token"))
    first = refused.value.diagnostics[0]
    op = Op(definition.name, [Value(F32)] * len(case.operand_types), definition=definition)
    name = next(name for name, place in definition.slices(op, "operand").items() if place.start <= index < place.stop)
    position = [declared.name for declared in definition.operands].index(name)
    assert first.label == ("I2" if case.op == "rng_bit_generator" else f"I{position + 1}")
    assert name in first.message


def test_algorithm_of_dot_general_is_judged_without_text_too() -> None:
    assert DotAlgorithmAttr(BF16, BF16, F32, 1, 1, 3, False).fault() is None
    assert DotAlgorithmAttr(BF16, BF16, F32, 1, 1, 2, False).fault() is not None


@pytest.mark.parametrize(
    ("op", "label", "headline"),
    [
        ("gather", "C20", r"\(C20\) .*\(C11 of StableHLO 0\.16\)$"),
        ("scatter", "C24", r"\(C24, C25\) .*\(C16, C17 of StableHLO 0\.16\)$"),
        ("convolution", "C31", r"\(C31\) .*\(C29 of StableHLO 0\.16\)$"),
        ("gather", "C2", r"\(C2\) .*, got \[4\] and 4$"),
    ],
)
def test_an_error_has_the_labels_of_both_editions_where_they_differ(op: str, label: str, headline: str) -> None:
    (case,) = [case for case in CASES if case.op == op and label in case.breaks]
    with pytest.raises(SpmdError) as refused:
        spmd.parse(case.broken(label))
    assert re.search(headline, refused.value.diagnostics[0].headline)


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ('"stablehlo.abs"(%x) : (tensor<3xf32>) -> tensor<3xcomplex<f32>>', r"\(C2\) result"),
        ('"stablehlo.abs"(%x) : (tensor<3xf32>) -> tensor<3xf64>', r"\(C1, C2\)"),
        ('"stablehlo.fft"(%x) <{fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 3>}> : '
         "(tensor<3xf32>) -> tensor<2xcomplex<f64>>", r"\(C2\) .*complex<f64> of f32 by RFFT"),
        ('"stablehlo.fft"(%x) <{fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 3>}> : '
         "(tensor<3xf32>) -> tensor<3xcomplex<f32>>", r"\(C5\)"),
    ],
)  # fmt: skip
def test_a_result_of_another_element_type_breaks_its_own_constraint(text: str, headline: str) -> None:
    with pytest.raises(SpmdError) as refused:
        spmd.parse(f"func.func @main(%x: tensor<3xf32>) {{ %0 = {text} return }}")
    assert re.search(headline, refused.value.diagnostics[0].headline)


@pytest.mark.parametrize(
    ("results", "label"),
    [("()", "C2"), ("(!stablehlo.token, !stablehlo.token)", "C3"), ("(tensor<2xf32>, tensor<2xf32>)", "C4"),
     ("(tensor<?xf32>, !stablehlo.token)", "C3")],
)  # fmt: skip
def test_what_recv_gives_has_labels_of_the_edition_that_states_it(results: str, label: str) -> None:
    with pytest.raises(SpmdError) as refused:
        spmd.parse(
            'func.func @main(%t: !stablehlo.token) { "stablehlo.recv"(%t) <{channel_handle = '
            f"#stablehlo.channel_handle<handle = 1, type = 1>}}> : (!stablehlo.token) -> {results} return }}"
        )
    assert f"({label} of StableHLO 0.16)" in refused.value.diagnostics[0].headline
