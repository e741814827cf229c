"""Verifies shardings over a module: meshes must exist, axes be used once, ranks match.

Source: Shardy's dialect documentation, the "Constraints" of TensorShardingAttr, ManualComputationOp, DataFlowEdgeOp,
FuncDataFlowEdgeOp, CollectiveOpInterface and of the ops; where its text is silent, its verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_attributes import RULE_NAME, SHARDING_NAME
from spmd.dialects.sdy_axes import ShardingFault, check_axes, check_sorted
from spmd.dialects.sdy_collectives import MAY_TAKE_UNSHARDED, check_collective, check_unreduced, collective_axes
from spmd.dialects.sdy_rule import check_rule
from spmd.dialects.sdy_values import GivenShardings, is_collective
from spmd.errors import Diagnostic
from spmd.ir import Block, Function, Module, Op, Value
from spmd.ir.attributes import ArrayAttr, Attribute, SymbolRefAttr
from spmd.types import BufferType, TensorType, TupleType, Type, UnrankedTensorType

_EDGES_NAME = "sdy.propagation_edges"
_EDGE_LISTS = ("sdy.result_propagation_edges", "sdy.block_arg_propagation_edges")


def verify_shardings(module: Module) -> Iterator[Diagnostic]:
    """Yield the faults of the sdy attributes and ops of `module`, in source order."""
    checker = _Checker(module)
    for op in (module, *module.body.ops):
        yield from checker.walk(op, frozenset())


class _Checker:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.meshes: dict[str, sdy.Mesh] = {
            op["sym_name"]: op["mesh"] for op in module.body.ops if op.name == "sdy.mesh"
        }

    @cached_property
    def shardings(self) -> GivenShardings:
        return GivenShardings(self.module)

    def walk(self, op: Op, manual: frozenset[str]) -> Iterator[Diagnostic]:
        """Check `op`, inside computations manual over `manual`, and all nested ops except those of nested modules."""
        try:
            self._op(op, manual)
        except ShardingFault as fault:
            yield Diagnostic(op.location, str(fault), op.name)
        if not op.regions or op is self.module:
            return
        if op.name == "sdy.manual_computation":
            manual |= frozenset(op["manual_axes"].axes)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    if inner.name == "sdy.mesh" and not isinstance(op, Module):
                        yield Diagnostic(inner.location, f"a mesh stands in a module, got one in {op.name}", inner.name)
                    if inner.regions or inner.discardable or inner.name.startswith("sdy."):
                        yield from self.walk(inner, manual)

    def _op(self, op: Op, manual: frozenset[str]) -> None:
        if isinstance(op, Function):
            self._entries("argument", op.argument_attributes, op.type.inputs)
            self._entries("result", op.result_attributes, op.type.results)
        if op.discardable:
            self._attributes(op, manual)
        check = _OP_CHECKS.get(op.name)
        if check is not None:
            check(self, op, manual)
        elif is_collective(op):
            self._collective(op, manual)

    def _entries(self, kind: str, entries: Sequence[Mapping[str, Attribute]], types: Sequence[Type]) -> None:
        for index, (attributes, type) in enumerate(zip(entries, types, strict=True)):
            sharding = attributes.get(SHARDING_NAME)
            if sharding is None:
                continue
            if not isinstance(sharding, sdy.TensorSharding):
                raise ShardingFault(f"{kind} {index}: {SHARDING_NAME} must be a #sdy.sharding")
            with _Prefix(f"{kind} {index}"):
                self._sharding(sharding, type, frozenset())

    def _attributes(self, op: Op, manual: frozenset[str]) -> None:
        attribute = op.discardable.get(SHARDING_NAME)
        if attribute is not None:
            if not isinstance(attribute, sdy.ShardingPerValue):
                raise ShardingFault(f"{SHARDING_NAME} of an op must be a #sdy.sharding_per_value")
            self._per_value("result", attribute, op.result_types, manual)
        rule = op.discardable.get(RULE_NAME)
        if rule is not None:
            if not isinstance(rule, sdy.OpShardingRule):
                raise ShardingFault(f"{RULE_NAME} must be a #sdy.op_sharding_rule")
            check_rule(rule, op)
        edges = op.discardable.get(_EDGES_NAME)
        if edges is not None:
            if not isinstance(edges, sdy.PropagationEdges):
                raise ShardingFault(f"{_EDGES_NAME} must be #sdy.propagation_edges")
            self._propagation_edges(edges, op)
        for name in _EDGE_LISTS:
            lists = op.discardable.get(name)
            if lists is not None and not _is_list_of_edges(lists):
                raise ShardingFault(f"{name} must be an array of #sdy.propagation_edges")

    # --- shardings

    def _per_value(
        self, kind: str, attribute: sdy.ShardingPerValue, types: Sequence[Type], manual: frozenset[str]
    ) -> None:
        if not types and len(attribute.shardings) == 1 and _is_everywhere(attribute.shardings[0]):
            self._check_everywhere(attribute.shardings[0])
            return
        if len(attribute.shardings) != len(types):
            raise ShardingFault(f"{len(attribute.shardings)} shardings for {len(types)} {kind}s")
        for index, (sharding, type) in enumerate(zip(attribute.shardings, types, strict=True)):
            with _Prefix(f"{kind} {index}"):
                self._sharding(sharding, type, manual)

    def mesh(self, reference: SymbolRefAttr | sdy.Mesh) -> sdy.Mesh:
        if isinstance(reference, sdy.Mesh):
            broken = reference.fault()
            if broken is not None:
                raise ShardingFault(broken[1])
            return reference
        if reference.root not in self.meshes:
            known = ", ".join("@" + name for name in self.meshes) or "none"
            raise ShardingFault(f"unknown mesh @{reference.root}; the module's meshes: {known}")
        return self.meshes[reference.root]

    def _check_everywhere(self, sharding: sdy.TensorSharding) -> None:
        self.mesh(sharding.mesh)
        if sharding.dimensions or sharding.replicated or sharding.unreduced:
            raise ShardingFault("a sharding on a maximal mesh must have rank 0 and no replicated or unreduced axes")

    def _sharding(self, sharding: sdy.TensorSharding, type: Type, manual: frozenset[str]) -> None:
        mesh = self.mesh(sharding.mesh)
        if mesh.is_maximal:
            self._check_everywhere(sharding)
            return
        if isinstance(type, TupleType):
            if len(type.types) != 1:
                raise ShardingFault(f"only a tuple of one value may have a sharding, got {type}")
            type = type.types[0]
        if isinstance(type, UnrankedTensorType):
            raise ShardingFault(f"only a ranked tensor may have a sharding, got {type}")
        if not isinstance(type, (TensorType, BufferType)):
            if sharding.dimensions or sharding.replicated or sharding.unreduced:
                text = "has a sharding of rank 0 without replicated or unreduced axes"
                raise ShardingFault(f"a value of type {type} {text}")
            return
        if len(sharding.dimensions) != len(type.shape):
            raise ShardingFault(
                f"the sharding must have the tensor's rank {len(type.shape)}, got {len(sharding.dimensions)}"
            )
        for index, dimension in enumerate(sharding.dimensions):
            if dimension.priority is not None and dimension.is_closed and not dimension.axes:
                raise ShardingFault(f"dimension {index} is empty and closed, so it must not have a priority")
        lists = [dimension.axes for dimension in sharding.dimensions]
        check_axes([*lists, sharding.replicated, sharding.unreduced], mesh)
        check_sorted("replicated", sharding.replicated, mesh)
        check_sorted("unreduced", sharding.unreduced, mesh)
        for axes in (*lists, sharding.replicated, sharding.unreduced):
            for axis in axes:
                if axis.name in manual:
                    raise ShardingFault(f'axis "{axis.name}" is already manual in an enclosing sdy.manual_computation')

    def _is_sound(self, sharding: sdy.TensorSharding) -> bool:
        """Return whether the axes of a sharding, whose faults are reported elsewhere, are valid on its mesh."""
        lists = [dimension.axes for dimension in sharding.dimensions]
        try:
            check_axes([*lists, sharding.replicated, sharding.unreduced], self.mesh(sharding.mesh))
        except ShardingFault:
            return False
        return True

    def common_mesh(self, shardings: Sequence[sdy.TensorSharding]) -> sdy.Mesh | None:
        """Return the mesh of all shardings except empty ones; None if there are several, or no shardings."""
        common: sdy.Mesh | None = None
        for sharding in shardings:
            mesh = self.mesh(sharding.mesh)
            if common is None or common == sdy.Mesh():
                common = mesh
            elif mesh not in (common, sdy.Mesh()):
                return None
        return common

    # --- ops

    def _resharding(self, op: Op, manual: frozenset[str]) -> None:
        result_sharding: sdy.TensorSharding = op["sharding"]
        self._sharding(result_sharding, op.result.type, manual)
        operand_sharding = self.shardings.past_barriers(op.operands[0])
        if (
            operand_sharding is not None
            and self._is_sound(operand_sharding)
            and self.mesh(operand_sharding.mesh) == self.mesh(result_sharding.mesh)
        ):
            check_unreduced(
                operand_sharding, result_sharding, self.mesh(result_sharding.mesh), "sum", operand_sharding.reduction_op
            )

    def _collective(self, op: Op, manual: frozenset[str]) -> None:
        """Check a collective's axes, and the result's sharding."""
        result_sharding: sdy.TensorSharding = op["out_sharding"]
        operand_sharding = self.shardings.of(op.operands[0])
        if operand_sharding is None and op.name not in MAY_TAKE_UNSHARDED:
            raise ShardingFault("the operand has no sharding")
        self._sharding(result_sharding, op.result.type, manual)
        mesh = self.mesh(result_sharding.mesh)
        check_axes(collective_axes(op), mesh)
        if operand_sharding is None:
            operand_sharding = sdy.TensorSharding(
                result_sharding.mesh, (sdy.DimensionSharding(is_closed=False),) * len(result_sharding.dimensions)
            )
        if not self._is_sound(operand_sharding):
            return
        other = self.mesh(operand_sharding.mesh)
        if other != mesh and (op.name != "sdy.collective_permute" or other.axes != mesh.axes):
            raise ShardingFault(f"the operand must be sharded over the result's mesh, got {other.format()}")
        if (
            op.name == "sdy.collective_permute"
            and operand_sharding.mesh != result_sharding.mesh
            and other.device_ids == mesh.device_ids
        ):
            raise ShardingFault("the operand's and the result's mesh must have one name for the same device order")
        check_collective(op, operand_sharding, mesh)

    def _data_flow_edge(self, op: Op, manual: frozenset[str]) -> None:
        source = op.operands[0]
        if self.shardings.uses(source) != 1:
            raise ShardingFault(f"the input of the edge must have one use, got {self.shardings.uses(source)} uses")
        maker = source.defining_op
        if maker is not None and maker.name.startswith("sdy.") and maker.name not in _WITH_EDGES:
            raise ShardingFault(f"the input of the edge must be of an op with data-flow edges, got {maker.name}")
        if op["sharding"] is not None:
            self._sharding(op["sharding"], op.result.type, manual)

    def _func_data_flow_edge(self, op: Op, manual: frozenset[str]) -> None:
        source = op.operands[0]
        if self.shardings.uses(source) != 1:
            raise ShardingFault(f"the operand of the edge must have one use, got {self.shardings.uses(source)} uses")
        if isinstance(source.owner, Block):
            if not isinstance(self.shardings.owner(source), Function):
                raise ShardingFault("the edge's operand must be an argument of a function, or a result of a call")
        elif source.defining_op is None or source.defining_op.name not in ("func.call", "call"):
            raise ShardingFault("the edge's operand must be a result of a call, or an argument of a function")

    def _named(self, op: Op, manual: frozenset[str]) -> None:
        for kind, name, types in (
            ("operand", "in_shardings", op.operand_types),
            ("result", "out_shardings", op.result_types),
        ):
            if op[name] is not None:
                self._per_value(kind, op[name], types, manual)

    def _manual(self, op: Op, outer: frozenset[str]) -> None:
        axes = op["manual_axes"].axes
        for name in axes:
            if name in outer:
                raise ShardingFault(f'axis "{name}" is already manual in an enclosing sdy.manual_computation')
        block = op.region("body").block
        local = frozenset(axes)
        self._manual_values("operand", op.operands, block.arguments, op["in_shardings"], local, outer)
        self._manual_values("result", op.results, block.terminator.operands, op["out_shardings"], local, outer)
        shardings = [*op["in_shardings"].shardings, *op["out_shardings"].shardings]
        if not shardings or not axes:
            return
        mesh = self.common_mesh(shardings)
        if mesh is None:
            raise ShardingFault("all in_shardings and out_shardings must be on one mesh")
        for name in axes:
            if mesh.axis_size(name) is None:
                raise ShardingFault(f'unknown manual axis "{name}"')

    def _manual_values(
        self,
        kind: str,
        whole: Sequence[Value],
        parts: Sequence[Value],
        shardings_attribute: sdy.ShardingPerValue,
        axes: frozenset[str],
        outer: frozenset[str],
    ) -> None:
        if not whole and not parts and not shardings_attribute.shardings:
            return
        self._per_value(kind, shardings_attribute, [value.type for value in whole], outer)
        if len(whole) != len(parts):
            raise ShardingFault(f"the body must have the op's {len(whole)} {kind}s, got {len(parts)}")
        for index, (value, part, sharding) in enumerate(zip(whole, parts, shardings_attribute.shardings, strict=False)):
            if isinstance(value.type, TensorType):
                with _Prefix(f"{kind} {index}"):
                    self._manual_value(value.type, part.type, sharding, axes)

    def _manual_value(self, whole: TensorType, part: Type, sharding: sdy.TensorSharding, axes: frozenset[str]) -> None:
        mesh = self.mesh(sharding.mesh)
        shape: list[int | None] = []
        dimensions = sharding.dimensions or (sdy.DimensionSharding(),) * whole.rank  # a maximal mesh has none
        for index, (size, dimension) in enumerate(zip(whole.shape, dimensions, strict=True)):
            is_manual = [axis.name in axes for axis in dimension.axes]
            if is_manual != sorted(is_manual, reverse=True):
                raise ShardingFault(
                    f"dimension {index}: manual axes must come before free ones, got {dimension.format()}"
                )
            count = 1
            for axis in dimension.axes:
                count *= axis.size(mesh) if axis.name in axes else 1
            if size is not None and size % count:
                raise ShardingFault(
                    f"dimension {index} of size {size} is not divisible by its manual axes' size {count}"
                )
            shape.append(None if size is None else size // count)
        if whole.with_shape(tuple(shape)) != part:
            raise ShardingFault(
                f"the body has {part} where the sharding of {whole} gives {whole.with_shape(tuple(shape))}"
            )

    def _propagation_edges(self, edges: sdy.PropagationEdges, op: Op) -> None:
        """Check propagation edges of `op`: references to its values, along axes of their mesh."""
        broken = edges.fault()
        if broken is not None:
            raise ShardingFault(broken[1])
        entries = [entry for step in edges.steps for entry in step.entries]
        references = [reference for entry in entries for reference in (entry.source, *entry.targets)]
        known = {"operand": op.operands, "result": op.results}
        edge_shardings = [
            self.shardings.of(known[reference.node][reference.index])
            for reference in references
            if 0 <= reference.index < len(known[reference.node])
        ]
        shardings = [sharding for sharding in edge_shardings if sharding is not None]
        if not shardings:
            raise ShardingFault(f"{_EDGES_NAME}: none of the referenced values has a sharding")
        mesh = self.common_mesh(shardings)
        if mesh is None:
            raise ShardingFault(f"{_EDGES_NAME}: the referenced values must be sharded over one mesh")
        for entry in entries:
            if mesh.axis_size(entry.axis.name) is None:
                raise ShardingFault(f"{_EDGES_NAME}: the mesh {mesh.format()} has no axis {entry.axis.format()}")
        for reference in references if op.name != "sdy.func_data_flow_edge" else ():
            if not 0 <= reference.index < len(known[reference.node]):
                count = len(known[reference.node])
                raise ShardingFault(f"{_EDGES_NAME}: {reference.format()} must be one of the op's {count}")


#: Ops of the dialect with data-flow edges.
_WITH_EDGES = frozenset(("sdy.named_computation", "sdy.manual_computation"))
_OP_CHECKS: dict[str, Callable[[_Checker, Op, frozenset[str]], None]] = {
    "sdy.sharding_constraint": _Checker._resharding,
    "sdy.reshard": _Checker._resharding,
    "sdy.data_flow_edge": _Checker._data_flow_edge,
    "sdy.func_data_flow_edge": _Checker._func_data_flow_edge,
    "sdy.manual_computation": _Checker._manual,
    "sdy.named_computation": _Checker._named,
}


def _is_everywhere(sharding: sdy.TensorSharding) -> bool:
    return not any(dimension.axes for dimension in sharding.dimensions)


def _is_list_of_edges(attribute: Attribute) -> bool:
    return isinstance(attribute, ArrayAttr) and all(
        isinstance(entry, sdy.PropagationEdges) for entry in attribute.elements
    )


class _Prefix:
    """Prefixes faults with the value that they concern."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, ShardingFault):
            raise ShardingFault(f"{self.text}: {fault}") from None
