"""Every op of the specification is declared, and each declaration holds together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spmd.dialects import OPS
from spmd.dialects.core import OpDef, Trait
from spmd.dialects.kinds import UNIT_FLAG
from spmd.ir import Op, Value
from spmd.types import F32, TensorType
from tests.dialects.test_constraints import LABELS

#: Ops whose sections label no constraints.
UNLABELLED = ("after_all", "outfeed", "partition_id", "replica_id", "custom_call")
#: "Deprecated Operations", and what the dialect has beyond the specification.
OTHERS = (
    "broadcast", "compute_reshape_shape", "create_token", "cross-replica-sum", "cstr_reshapable", "dot", "einsum",
    "real_dynamic_slice", "return", "set_dimension_size", "torch_index_select", "unary_einsum",
)  # fmt: skip
CHLO = (
    "_asin_acos_kernel", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "broadcast_add",
    "broadcast_and", "broadcast_atan2", "broadcast_compare", "broadcast_complex", "broadcast_divide",
    "broadcast_maximum", "broadcast_minimum", "broadcast_multiply", "broadcast_next_after", "broadcast_or",
    "broadcast_polygamma", "broadcast_power", "broadcast_remainder", "broadcast_select", "broadcast_shift_left",
    "broadcast_shift_right_arithmetic", "broadcast_shift_right_logical", "broadcast_subtract", "broadcast_xor",
    "broadcast_zeta", "conj", "constant", "constant_like", "cosh", "digamma", "erf", "erf_inv", "erfc", "is_inf",
    "is_neg_inf", "is_pos_inf", "lgamma", "mulhi", "next_after", "polygamma", "ragged_dot", "scan", "sinh", "square",
    "tan", "top_k", "zeta",
)  # fmt: skip


def test_every_op_is_declared() -> None:
    assert {f"stablehlo.{name}" for name in (*LABELS, *UNLABELLED, *OTHERS)} == {
        name for name in OPS if name.startswith("stablehlo.")
    }
    assert {f"chlo.{name}" for name in CHLO} == {name for name in OPS if name.startswith("chlo.")}


@pytest.mark.sampled(55)
@pytest.mark.parametrize("definition", OPS.values(), ids=lambda definition: definition.name)
def test_an_assembly_form_names_only_what_is_declared(definition: OpDef) -> None:
    declared = [*definition.operands, *definition.attributes, *definition.results, *definition.regions]
    names = [entry.name for entry in declared]
    assert len(set(names)) == len(names)
    assert set(re.findall(r"\$(\w+)", definition.assembly or "")) <= set(names)


@pytest.mark.parametrize("definition", OPS.values(), ids=lambda definition: definition.name)
def test_defaults_are_values_of_their_attributes(definition: OpDef) -> None:
    for attribute in definition.attributes:
        if attribute.required or attribute.optional or callable(attribute.default) or attribute.kind is UNIT_FLAG:
            continue  # an absent unit attribute is a flag that is not set
        assert attribute.kind.decode(attribute.kind.encode(attribute.default)) == attribute.default


def test_operands_are_dealt_out_by_name() -> None:
    tensor = TensorType((), F32)
    values = [Value(tensor) for _ in range(5)]
    scatter = Op("stablehlo.scatter", values, definition=OPS["stablehlo.scatter"])
    assert scatter.operand_group("inputs") == tuple(values[:2])
    assert scatter.operand("scatter_indices") is values[2]
    assert scatter.operand_group("updates") == tuple(values[3:])


def test_a_missing_attribute_reads_as_its_default() -> None:
    call = Op("stablehlo.custom_call", definition=OPS["stablehlo.custom_call"])
    assert (call["has_side_effect"], call["api_version"], call["called_computations"]) == (False, 1, ())
    assert call["backend_config"] is None
    with pytest.raises(KeyError, match="call_target_name"):
        call["call_target_name"]


def test_every_trait_is_declared_by_some_op_and_read_by_some_code() -> None:
    declared = {trait for definition in OPS.values() for trait in definition.traits}
    root = Path(__file__).parents[2]
    texts = [file.read_text() for package in ("spmd", "partitioner") for file in (root / package).rglob("*.py")]
    tests = re.compile(
        r"Trait\.([A-Z_]+)\)? (?:not )?in |has_trait\(\w+, Trait\.([A-Z_]+)|named\(\"\w+\", Trait\.([A-Z_]+)"
    )
    read = {Trait[next(filter(None, matches))] for text in texts for matches in tests.findall(text)}
    assert declared == read == set(Trait)
