"""Defaults of attributes that StableHLO ops may omit but VHLO's must have.

The same table is used to add omitted attributes when writing, to remove them when reading, and to check attributes that
the target version lacks. Source: openxla/stablehlo, the passes between StableHLO and VHLO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spmd import types as t
from spmd.artifacts.encodings.vhlo import ApiVersion
from spmd.dialects import OPS
from spmd.dialects.core import Trait
from spmd.dialects.structs import ResultAccuracyAttr
from spmd.ir.attributes import (
    FALSE,
    ArrayAttr,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    DictAttr,
    EnumAttr,
    IntegerAttr,
    StringAttr,
    TypeAttr,
)


@dataclass(frozen=True)
class Default:
    """`make` returns the default for a number of spatial dimensions; `holds` recognizes it."""

    make: Callable[[int], Attribute]
    holds: Callable[[Attribute], bool]


def _constant(value: Attribute) -> Default:
    return Default(lambda rank: value, lambda attribute: attribute == value)


def _integer(value: int, type: t.ElementType) -> Default:
    return Default(
        lambda rank: IntegerAttr(value, type),
        lambda attribute: isinstance(attribute, IntegerAttr) and attribute.value == value,
    )


def integers(shape: tuple[int, ...], value: int, element: t.ElementType = t.I64) -> DenseAttr:
    """Return a splat tensor constant."""
    return DenseAttr(np.full(shape, value, element.dtype), t.TensorType(shape, element))


def _is_all(value: int) -> Callable[[Attribute], bool]:
    def holds(attribute: Attribute) -> bool:
        if isinstance(attribute, DenseArrayAttr):
            return all(entry == value for entry in attribute.values)
        return isinstance(attribute, DenseAttr) and bool((attribute.array == value).all())

    return holds


def _is_empty(attribute: Attribute) -> bool:
    if isinstance(attribute, DenseArrayAttr):
        return not attribute.values
    return isinstance(attribute, DenseAttr) and attribute.array.size == 0


_DEFAULT_PRECISION = EnumAttr("stablehlo", "precision", "DEFAULT")
_FALSE = _constant(FALSE)
_EMPTY_ARRAY = _constant(ArrayAttr(()))
_EMPTY_STRING = _constant(StringAttr(b""))
_ZERO = _integer(0, t.I64)
_ONES = Default(lambda rank: integers((rank,), 1), _is_all(1))
_NO_PADDING = Default(lambda rank: integers((rank, 2), 0), _is_all(0))
_NO_REVERSAL = Default(lambda rank: integers((rank,), 0, t.I1), _is_all(0))
_NOTHING = Default(lambda rank: integers((0,), 0), _is_empty)
_NO_TYPE = _constant(TypeAttr(t.OpaqueType("none")))
_PRECISIONS = Default(
    lambda rank: ArrayAttr((_DEFAULT_PRECISION, _DEFAULT_PRECISION)),
    lambda value: isinstance(value, ArrayAttr) and all(entry == _DEFAULT_PRECISION for entry in value.elements),
)
_NO_CONFIG = Default(lambda rank: StringAttr(b""), lambda attribute: attribute in (StringAttr(b""), DictAttr({})))

#: Defaults of attributes of any op.
_BY_NAME: dict[str, Default] = {
    "api_version": _constant(ApiVersion(1)),
    "arg_attrs": _EMPTY_ARRAY,
    "backend_config": _NO_CONFIG,
    "base_dilations": _ONES,
    "called_computations": _EMPTY_ARRAY,
    "compare_type": _constant(EnumAttr("stablehlo", "comparison_type", "NOTYPE")),
    "composite_attributes": _constant(DictAttr({})),
    "has_dynamic_root": _FALSE,
    "has_side_effect": _FALSE,
    "indices_are_sorted": _FALSE,
    "infeed_config": _EMPTY_STRING,
    "input_batching_dims": _NOTHING,
    "is_host_transfer": _FALSE,
    "is_stable": _FALSE,
    "known_expanding_dimensions": _NOTHING,
    "known_nonexpanding_dimensions": _NOTHING,
    "layout": _EMPTY_ARRAY,
    "lhs_dilation": _ONES,
    "operand_batching_dims": _NOTHING,
    "operand_layouts": _EMPTY_ARRAY,
    "outfeed_config": _EMPTY_STRING,
    "output_operand_aliases": _EMPTY_ARRAY,
    "precision_config": _PRECISIONS,
    "res_attrs": _EMPTY_ARRAY,
    "result_accuracy": _constant(ResultAccuracyAttr()),
    "result_layouts": _EMPTY_ARRAY,
    "result_tilings": _EMPTY_ARRAY,
    "rhs_dilation": _ONES,
    "scatter_indices_batching_dims": _NOTHING,
    "start_indices_batching_dims": _NOTHING,
    "sym_visibility": _EMPTY_STRING,
    "unique_indices": _FALSE,
    "use_global_device_ids": _FALSE,
    "version": _integer(0, t.I32),
    "window_dilations": _ONES,
    "window_reversal": _NO_REVERSAL,
    "window_strides": _ONES,
    **dict.fromkeys(
        ("lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count", "rhs_component_count",
         "num_primitive_operations", "allow_imprecise_accumulation"), _NO_TYPE,
    ),
}  # fmt: skip

#: Defaults for these ops only: for others the attribute is required.
_BY_OP: dict[tuple[str, str], Default] = {
    ("cholesky", "lower"): _FALSE,
    ("sort", "dimension"): _integer(-1, t.I64),
    **{(op, "padding"): _NO_PADDING for op in ("convolution", "dynamic_conv", "reduce_window", "select_and_scatter")},
    **{(op, "source_target_pairs"): _NOTHING for op in ("send", "recv")},
    **{
        (name.removeprefix("stablehlo."), "channel_id"): _ZERO
        for name, declared in OPS.items()
        if Trait.COLLECTIVE in declared.traits and declared.dialect == "stablehlo"
    },
}  # fmt: skip


def default_of(base: str, name: str) -> Default | None:
    """Return the default of attribute `name` of the op, or None."""
    return _BY_OP.get((base, name)) or _BY_NAME.get(name)
