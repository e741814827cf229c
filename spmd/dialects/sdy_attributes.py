"""Attributes of the sdy dialect: meshes, shardings, factor rules, and what its collectives take.

Each is a frozen dataclass and its own value. `format()` returns the body of its text, without `#sdy.mnemonic`, as it
is written inside other sdy attributes ("stripped"). Source: Shardy's dialect documentation, "Attributes".
"""

from __future__ import annotations

from math import prod

from spmd.dialects.structs import StructAttribute, struct_attribute
from spmd.ir.attributes import SymbolRefAttr

#: Names of the attributes with shardings of arguments, results and ops, and with an op's factor rule.
SHARDING_NAME = "sdy.sharding"
RULE_NAME = "sdy.sharding_rule"
_FACTOR_LETTERS = "ijklmnopqrstuvwxyz"


def quote(text: str) -> str:
    """Return a string in MLIR's quotes."""
    return '"' + text.replace("\\", "\\5C").replace('"', "\\22") + '"'


def factor_symbol(index: int) -> str:
    """Return the name of factor `index` in a rule's text: i, j, ..., z, z_1, z_2, ..."""
    last = len(_FACTOR_LETTERS) - 1
    return _FACTOR_LETTERS[index] if index <= last else f"z_{index - last}"


@struct_attribute("sdy", "mesh_axis")
class MeshAxis(StructAttribute):
    """`"x"=4`: a named axis and its size."""

    name: str
    size: int

    def format(self) -> str:
        return f"{quote(self.name)}={self.size}"


@struct_attribute("sdy", "mesh")
class Mesh(StructAttribute):
    """`<["x"=4, "y"=2], device_ids=[...]>`: axes, and the device at each position if they differ.

    A mesh without axes and with one device id is maximal (everything is on that device); without both it is empty.
    """

    axes: tuple[MeshAxis, ...] = ()
    device_ids: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(axis.size for axis in self.axes)

    @property
    def is_maximal(self) -> bool:
        """Whether the mesh is a single device without axes."""
        return not self.axes and len(self.device_ids) == 1

    def fault(self) -> tuple[str, str] | None:
        """Return the fault by MeshAttr's "Constraints" in Shardy's documentation, or None."""
        message = self._device_fault() or self._axis_fault()
        return None if message is None else ("", message)

    def _device_fault(self) -> str | None:
        devices = list(self.device_ids)
        if any(device < 0 for device in devices):
            return f"device ids must not be negative, got {devices}"
        if not self.axes:
            return None if len(devices) < 2 else f"a mesh without axes has at most one device id, got {len(devices)}"
        if not devices:
            return None
        if len(devices) != self.size:
            return f"there must be {self.size} device ids, got {len(devices)}"
        if sorted(devices) != list(range(self.size)):
            return f"device ids must be a permutation of 0 to {self.size - 1}, got {devices}"
        return "device ids in their natural order must be left out" if devices == sorted(devices) else None

    def _axis_fault(self) -> str | None:
        names = [axis.name for axis in self.axes]
        for axis in self.axes:
            if axis.size < 1:
                return f'axis "{axis.name}" must have a size of at least 1, got {axis.size}'
            if names.count(axis.name) > 1:
                return f'axis name "{axis.name}" is used twice'
        return None

    def axis_size(self, name: str) -> int | None:
        """Return the size of axis `name`; None if the mesh has no such axis."""
        return next((axis.size for axis in self.axes if axis.name == name), None)

    def axis_position(self, name: str) -> int:
        return next(index for index, axis in enumerate(self.axes) if axis.name == name)

    def format(self) -> str:
        axes = ", ".join(axis.format() for axis in self.axes)
        devices = f", device_ids=[{', '.join(map(str, self.device_ids))}]" if self.device_ids else ""
        return f"<[{axes}]{devices}>"


@struct_attribute("sdy", "sub_axis_info")
class SubAxisInfo(StructAttribute):
    """`(pre_size)size`: the sub-axis of `size` after more major sub-axes of total size `pre_size`."""

    pre_size: int
    size: int

    def format(self) -> str:
        return f"({self.pre_size}){self.size}"


@struct_attribute("sdy", "axis_ref")
class AxisRef(StructAttribute):
    """`"x"` or `"x":(2)4`: an axis or a sub-axis."""

    name: str
    sub_axis_info: SubAxisInfo | None = None

    def format(self) -> str:
        return quote(self.name) + (f":{self.sub_axis_info.format()}" if self.sub_axis_info else "")

    def interval(self, full_size: int) -> tuple[int, int]:
        """Return (pre-size, pre-size * size) in an axis of `full_size`; references overlap if their intervals do."""
        if self.sub_axis_info is None:
            return 1, full_size
        return self.sub_axis_info.pre_size, self.sub_axis_info.pre_size * self.sub_axis_info.size

    def size(self, mesh: Mesh) -> int:
        if self.sub_axis_info is not None:
            return self.sub_axis_info.size
        extent = mesh.axis_size(self.name)
        assert extent is not None
        return extent


def format_axes(axes: tuple[AxisRef, ...]) -> str:
    return "{" + ", ".join(axis.format() for axis in axes) + "}"


@struct_attribute("sdy", "dimension_sharding")
class DimensionSharding(StructAttribute):
    """`{"x", "y", ?}p1`: axes, major first, whether more may be added, and the priority."""

    axes: tuple[AxisRef, ...] = ()
    is_closed: bool = True
    priority: int | None = None

    def format(self) -> str:
        parts = [axis.format() for axis in self.axes] + ([] if self.is_closed else ["?"])
        return "{" + ", ".join(parts) + "}" + ("" if self.priority is None else f"p{self.priority}")


@struct_attribute("sdy", "sharding")
class TensorSharding(StructAttribute):
    """`<@mesh, [{"x"}, {?}], replicated={"y"}, unreduced={"z"}>`.

    `mesh` is a symbol or an inline mesh; `reduction_op` (sum, max, min) reduces the unreduced axes.
    """

    mesh: SymbolRefAttr | Mesh
    dimensions: tuple[DimensionSharding, ...] = ()
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    reduction_op: str = "sum"

    def format(self) -> str:
        mesh = f"mesh{self.mesh.format()}" if isinstance(self.mesh, Mesh) else "@" + self.mesh.root
        text = f"<{mesh}, [{', '.join(dimension.format() for dimension in self.dimensions)}]"
        if self.replicated:
            text += f", replicated={format_axes(self.replicated)}"
        if self.unreduced:
            kind = "" if self.reduction_op == "sum" else self.reduction_op
            text += f", unreduced={kind}{format_axes(self.unreduced)}"
        return text + ">"


@struct_attribute("sdy", "sharding_per_value")
class ShardingPerValue(StructAttribute):
    """`<[<@mesh, [...]>, ...]>`: one sharding per operand or result."""

    shardings: tuple[TensorSharding, ...] = ()

    def format_list(self) -> str:
        return "[" + ", ".join(sharding.format() for sharding in self.shardings) + "]"

    def format(self) -> str:
        return f"<{self.format_list()}>"


@struct_attribute("sdy", "manual_axes")
class ManualAxes(StructAttribute):
    """`{"x", "y"}`: the manual axes of a manual computation."""

    axes: tuple[str, ...] = ()

    def format(self) -> str:
        return "{" + ", ".join(map(quote, self.axes)) + "}"


@struct_attribute("sdy", "dim_mapping")
class DimMapping(StructAttribute):
    """`ij`: the factors of one dimension, major first."""

    factors: tuple[int, ...] = ()

    def format(self) -> str:
        return "".join(map(factor_symbol, self.factors))


@struct_attribute("sdy", "tensor_mapping")
class TensorMapping(StructAttribute):
    """`[i, jk]`: the factors of each dimension of one tensor."""

    dimensions: tuple[DimMapping, ...] = ()

    def format(self) -> str:
        return "[" + ", ".join(dimension.format() for dimension in self.dimensions) + "]"


@struct_attribute("sdy", "op_sharding_rule")
class OpShardingRule(StructAttribute):
    """`<([i, k],[k, j])->([i, j]) {i=8, j=16, k=8} reduction={k}>`: the factors of an op's dimensions."""

    factor_sizes: tuple[int, ...] = ()
    operands: tuple[TensorMapping, ...] = ()
    results: tuple[TensorMapping, ...] = ()
    reduction: tuple[int, ...] = ()
    need_replication: tuple[int, ...] = ()
    permutation: tuple[int, ...] = ()
    blocked_propagation: tuple[int, ...] = ()
    is_custom: bool = False

    def format(self) -> str:
        text = f"<({', '.join(m.format() for m in self.operands)})->({', '.join(m.format() for m in self.results)})"
        if self.factor_sizes:
            sizes = ", ".join(f"{factor_symbol(index)}={size}" for index, size in enumerate(self.factor_sizes))
            text += f" {{{sizes}}}"
        for name in ("reduction", "need_replication", "permutation", "blocked_propagation"):
            factors = getattr(self, name)
            if factors:
                text += f" {name}={{{', '.join(map(factor_symbol, factors))}}}"
        return text + (", custom>" if self.is_custom else ">")


@struct_attribute("sdy", "axis_ref_list")
class AxisRefList(StructAttribute):
    """`{"x", "y":(1)2}`."""

    axes: tuple[AxisRef, ...] = ()

    def format(self) -> str:
        return format_axes(self.axes)


@struct_attribute("sdy", "list_of_axis_ref_lists")
class ListOfAxisRefLists(StructAttribute):
    """`[{"x"}, {}]`: one list of axes per dimension."""

    lists: tuple[AxisRefList, ...] = ()

    def format(self) -> str:
        return "[" + ", ".join(axes.format() for axes in self.lists) + "]"


@struct_attribute("sdy", "all_to_all_param")
class AllToAllParam(StructAttribute):
    """`{"x"}: 0->2`: axes moved from one dimension to another."""

    axes: tuple[AxisRef, ...]
    source: int
    target: int

    def format(self) -> str:
        return f"{format_axes(self.axes)}: {self.source}->{self.target}"


@struct_attribute("sdy", "all_to_all_param_list")
class AllToAllParamList(StructAttribute):
    """`[{"x"}: 0->2, {"y"}: 1->3]`."""

    params: tuple[AllToAllParam, ...] = ()

    def format(self) -> str:
        return "[" + ", ".join(param.format() for param in self.params) + "]"


@struct_attribute("sdy", "edge_value_ref")
class EdgeValueRef(StructAttribute):
    """`operand-0` or `result-1`."""

    node: str
    index: int

    def format(self) -> str:
        return f"{self.node}-{self.index}"


@struct_attribute("sdy", "axis_to_propagation_details")
class AxisToPropagationDetails(StructAttribute):
    """`{"x" = operand-0 -> [result-0]}`: the source and the targets of an axis."""

    axis: AxisRef
    source: EdgeValueRef
    targets: tuple[EdgeValueRef, ...] = ()

    def format(self) -> str:
        targets = ", ".join(target.format() for target in self.targets)
        return f"{{{self.axis.format()} = {self.source.format()} -> [{targets}]}}"


@struct_attribute("sdy", "propagation_one_step")
class PropagationOneStep(StructAttribute):
    """`{step-0 = [...]}`: the effect of one propagation step."""

    step: int
    entries: tuple[AxisToPropagationDetails, ...] = ()

    def format(self) -> str:
        return f"{{step-{self.step} = [{', '.join(entry.format() for entry in self.entries)}]}}"


@struct_attribute("sdy", "propagation_edges")
class PropagationEdges(StructAttribute):
    """`<[{step-0 = [...]}]>`."""

    steps: tuple[PropagationOneStep, ...] = ()

    def fault(self) -> tuple[str, str] | None:
        """Return the fault by the verifier of Shardy's PropagationEdgesAttr, or None."""
        numbers = [step.step for step in self.steps]
        for step in self.steps:
            if step.step < 0:
                return "", f"step {step.step} is negative"
            if numbers.count(step.step) > 1:
                return "", f"step {step.step} is defined twice"
            for entry in step.entries:
                if entry.source in entry.targets:
                    return "", f"step {step.step}: {entry.source.format()} is both source and target"
                if len(set(entry.targets)) != len(entry.targets):
                    return "", f"step {step.step}: axis {entry.axis.format()} has a target twice"
        return None

    def format(self) -> str:
        return f"<[{', '.join(step.format() for step in self.steps)}]>"
