"""Structured attributes of StableHLO and CHLO: each a frozen dataclass that is its own value.

Field names are the assembly's own. The default assembly is `#dialect.mnemonic<field = value, ...>`, in which a field
equal to its default is left out; spmd/syntax holds the few forms that differ. Source: StableHLO specification, the
Inputs of the op that takes each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spmd.attributes import ArrayAttr, Attribute, DenseAttr
from spmd.types import Type

#: Struct classes by (dialect, mnemonic).
STRUCTS: dict[tuple[str, str], type[Attribute]] = {}


def struct_attribute(dialect: str, mnemonic: str):  # type: ignore[no-untyped-def]
    """Class decorator: registers the dataclass as attribute `#dialect.mnemonic<...>`."""

    def register(cls):  # type: ignore[no-untyped-def]
        cls.DIALECT, cls.MNEMONIC, cls.SPELLING = dialect, mnemonic, f"#{dialect}.{mnemonic}<...>"
        STRUCTS[dialect, mnemonic] = cls
        return cls

    return register


class StructAttribute(Attribute):
    """Base of structured attributes."""

    DIALECT: ClassVar[str]
    MNEMONIC: ClassVar[str]
    SPELLING: ClassVar[str]


@struct_attribute("stablehlo", "dot")
@dataclass(frozen=True)
class DotDimensionNumbers(StructAttribute):
    lhs_batching_dimensions: tuple[int, ...] = ()
    rhs_batching_dimensions: tuple[int, ...] = ()
    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()


@struct_attribute("stablehlo", "gather")
@dataclass(frozen=True)
class GatherDimensionNumbers(StructAttribute):
    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    index_vector_dim: int = 0


@struct_attribute("stablehlo", "scatter")
@dataclass(frozen=True)
class ScatterDimensionNumbers(StructAttribute):
    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    scatter_dims_to_operand_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


@struct_attribute("stablehlo", "conv")
@dataclass(frozen=True)
class ConvDimensionNumbers(StructAttribute):
    """Assembly: `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>` (also `raw` form with field names)."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]


@struct_attribute("stablehlo", "dot_algorithm")
@dataclass(frozen=True)
class DotAlgorithm(StructAttribute):
    lhs_precision_type: Type
    rhs_precision_type: Type
    accumulation_type: Type
    lhs_component_count: int
    rhs_component_count: int
    num_primitive_operations: int
    allow_imprecise_accumulation: bool


@struct_attribute("stablehlo", "channel_handle")
@dataclass(frozen=True)
class ChannelHandle(StructAttribute):
    """`type`: 0 or 1 device to device, 2 device to host, 3 host to device."""

    handle: int
    type: int


@struct_attribute("stablehlo", "output_operand_alias")
@dataclass(frozen=True)
class OutputOperandAlias(StructAttribute):
    output_tuple_indices: tuple[int, ...]
    operand_index: int
    operand_tuple_indices: tuple[int, ...]


@struct_attribute("stablehlo", "result_accuracy")
@dataclass(frozen=True)
class ResultAccuracy(StructAttribute):
    """`mode` is DEFAULT, HIGHEST or TOLERANCE."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0
    mode: str = "DEFAULT"


@struct_attribute("stablehlo", "sub_axis_info")
@dataclass(frozen=True)
class SubAxisInfo(StructAttribute):
    """Assembly: `(pre_size)size`."""

    pre_size: int
    size: int


@struct_attribute("stablehlo", "axis_ref")
@dataclass(frozen=True)
class AxisRef(StructAttribute):
    name: str
    sub_axis_info: SubAxisInfo | None = None


@struct_attribute("stablehlo", "mesh_axis")
@dataclass(frozen=True)
class MeshAxis(StructAttribute):
    name: str
    size: int


@struct_attribute("stablehlo", "mesh")
@dataclass(frozen=True)
class Mesh(StructAttribute):
    axes: tuple[MeshAxis, ...]
    device_ids: DenseAttr | None = None


@struct_attribute("stablehlo", "replica_group_mesh_axes")
@dataclass(frozen=True)
class ReplicaGroupMeshAxes(StructAttribute):
    """`mesh` is a SymbolRefAttr or a Mesh; `axes` an array of AxisRef."""

    mesh: Attribute
    axes: ArrayAttr


@struct_attribute("chlo", "ragged_dot")
@dataclass(frozen=True)
class RaggedDotDimensionNumbers(StructAttribute):
    lhs_batching_dimensions: tuple[int, ...] = ()
    rhs_batching_dimensions: tuple[int, ...] = ()
    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()
    lhs_ragged_dimensions: tuple[int, ...] = ()
    rhs_group_dimensions: tuple[int, ...] = ()
