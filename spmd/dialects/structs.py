"""Structured attributes of StableHLO and CHLO: frozen dataclasses that are their own values.

Field names are those of the assembly. The default assembly is `#dialect.mnemonic<field = value, ...>` without fields
that equal their default; spmd/syntax has the exceptions. Source: StableHLO specification, the
Inputs of the op that takes each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar, dataclass_transform

from spmd.ir.attributes import ArrayAttr, Attribute, DenseAttr, SymbolRefAttr
from spmd.types import Type

#: Struct classes by (dialect, mnemonic).
STRUCTS: dict[tuple[str, str], type[Attribute]] = {}


class StructAttribute(Attribute):
    """The base of structured attributes."""

    DIALECT: ClassVar[str]
    MNEMONIC: ClassVar[str]
    SPELLING: ClassVar[str]

    def fault(self) -> tuple[str, str] | None:
        """Return (constraint label, fault) if the attribute violates constraints by itself, else None."""
        return None


S = TypeVar("S", bound=StructAttribute)


@dataclass_transform(frozen_default=True)
def struct_attribute(dialect: str, mnemonic: str) -> Callable[[type[S]], type[S]]:
    """Return a decorator that makes a class a frozen dataclass, registered as `#dialect.mnemonic<...>`."""

    def register(cls: type[S]) -> type[S]:
        cls = dataclass(frozen=True)(cls)
        cls.DIALECT, cls.MNEMONIC, cls.SPELLING = dialect, mnemonic, f"#{dialect}.{mnemonic}<...>"
        STRUCTS[dialect, mnemonic] = cls
        return cls

    return register


@struct_attribute("stablehlo", "dot")
class DotDimensionNumbersAttr(StructAttribute):
    lhs_batching_dimensions: tuple[int, ...] = ()
    rhs_batching_dimensions: tuple[int, ...] = ()
    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()


@struct_attribute("stablehlo", "gather")
class GatherDimensionNumbersAttr(StructAttribute):
    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    index_vector_dim: int = 0


@struct_attribute("stablehlo", "scatter")
class ScatterDimensionNumbersAttr(StructAttribute):
    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    scatter_dims_to_operand_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


@struct_attribute("stablehlo", "conv")
class ConvDimensionNumbersAttr(StructAttribute):
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


_F8 = {"f8E3M4", "f8E4M3", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2FNUZ"}
#: (precision of lhs, of rhs, accumulation, primitive operations) supported by some hardware.
_ALGORITHMS = {
    (precision, precision, accumulation, operations)
    for precision, accumulation, operations in (
        ("f16", "f16", 1), ("f16", "f32", 1), ("bf16", "bf16", 1), ("bf16", "f32", 1), ("bf16", "f32", 3),
        ("bf16", "f32", 6), ("bf16", "f32", 9), ("tf32", "f32", 1), ("tf32", "f32", 3), ("f32", "f32", 1),
        ("f64", "f64", 1),
    )
}  # fmt: skip


@struct_attribute("stablehlo", "dot_algorithm")
class DotAlgorithmAttr(StructAttribute):
    lhs_precision_type: Type
    rhs_precision_type: Type
    accumulation_type: Type
    lhs_component_count: int
    rhs_component_count: int
    num_primitive_operations: int
    allow_imprecise_accumulation: bool

    def fault(self) -> tuple[str, str] | None:
        for label, name in (
            ("C22", "lhs_component_count"), ("C23", "rhs_component_count"), ("C24", "num_primitive_operations"),
        ):  # fmt: skip
            if getattr(self, name) < 1:
                return label, f"0 < {name}, got {getattr(self, name)}"
        types = (str(self.lhs_precision_type), str(self.rhs_precision_type), str(self.accumulation_type))
        if (self.lhs_component_count, self.rhs_component_count) == (1, 1):
            operations = self.num_primitive_operations
            if types[0] in _F8 and types[1] in _F8 and (types[2], operations) == ("f32", 1):
                return None
            if not self.allow_imprecise_accumulation and (*types, operations) in _ALGORITHMS:
                return None
        return "I8", (
            f"the algorithm is one that some hardware has, got lhs {types[0]} x{self.lhs_component_count}, "
            f"rhs {types[1]} x{self.rhs_component_count}, accumulation {types[2]}, {self.num_primitive_operations} "
            f"operations, imprecise {self.allow_imprecise_accumulation}"
        )


@struct_attribute("stablehlo", "channel_handle")
class ChannelHandleAttr(StructAttribute):
    """`type`: 0 or 1 device to device, 2 device to host, 3 host to device."""

    handle: int
    type: int


@struct_attribute("stablehlo", "output_operand_alias")
class OutputOperandAliasAttr(StructAttribute):
    output_tuple_indices: tuple[int, ...]
    operand_index: int
    operand_tuple_indices: tuple[int, ...]


@struct_attribute("stablehlo", "result_accuracy")
class ResultAccuracyAttr(StructAttribute):
    """`mode` is DEFAULT, HIGHEST or TOLERANCE."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0
    mode: str = "DEFAULT"

    def fault(self) -> tuple[str, str] | None:
        tolerances = (self.atol, self.rtol, self.ulps)
        if all(value >= 0 for value in tolerances) and (self.mode == "TOLERANCE" or not any(tolerances)):
            return None
        text = f"{self.atol}, {self.rtol} and {self.ulps} in mode {self.mode}"
        return "", f"tolerances must not be negative, and be zero unless the mode is TOLERANCE, got {text}"


@struct_attribute("stablehlo", "sub_axis_info")
class SubAxisInfoAttr(StructAttribute):
    """Assembly: `(pre_size)size`."""

    pre_size: int
    size: int


@struct_attribute("stablehlo", "axis_ref")
class AxisRefAttr(StructAttribute):
    name: str
    sub_axis_info: SubAxisInfoAttr | None = None


@struct_attribute("stablehlo", "mesh_axis")
class MeshAxisAttr(StructAttribute):
    name: str
    size: int


@struct_attribute("stablehlo", "mesh")
class MeshAttr(StructAttribute):
    axes: tuple[MeshAxisAttr, ...]
    device_ids: DenseAttr | None = None


@struct_attribute("stablehlo", "replica_group_mesh_axes")
class ReplicaGroupMeshAxesAttr(StructAttribute):
    """`mesh` is a SymbolRefAttr or a MeshAttr; `axes` an array of AxisRefAttr."""

    mesh: Attribute
    axes: ArrayAttr

    def fault(self) -> tuple[str, str] | None:
        if not isinstance(self.mesh, (MeshAttr, SymbolRefAttr)):
            return "", f"the mesh must be a symbol or #stablehlo.mesh<...>, got {self.mesh}"
        if isinstance(self.mesh, SymbolRefAttr):
            return None
        known = [axis.name for axis in self.mesh.axes]
        for axis in self.axes.elements:
            if not isinstance(axis, AxisRefAttr):
                return "", f"axes must be #stablehlo.axis_ref<...>, got {axis}"
            if axis.name not in known:
                return "", f'axes must be axes of the mesh, got "{axis.name}" of {", ".join(known)}'
        return None


@struct_attribute("chlo", "ragged_dot")
class RaggedDotDimensionNumbersAttr(StructAttribute):
    lhs_batching_dimensions: tuple[int, ...] = ()
    rhs_batching_dimensions: tuple[int, ...] = ()
    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()
    lhs_ragged_dimensions: tuple[int, ...] = ()
    rhs_group_dimensions: tuple[int, ...] = ()
