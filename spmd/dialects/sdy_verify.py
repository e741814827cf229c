"""What a module's shardings must obey beyond one op: meshes that exist, axes used once, ranks that fit.

Source: Shardy's dialect documentation, the "Constraints" of TensorShardingAttr, AxisRefListAttr, SubAxisInfoAttr,
DimensionShardingAttr, OpShardingRuleAttr, ManualComputationOp and the collective ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd.attributes import SymbolRefAttr
from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_collectives import collective_axes, collective_fault
from spmd.errors import Diagnostic
from spmd.ir import Function, Module, Op, Value
from spmd.types import TensorType, TupleType, Type

#: Where the shardings of arguments, results and ops stand.
SHARDING_NAME = "sdy.sharding"
RULE_NAME = "sdy.sharding_rule"


class _Fault(Exception):
    """What breaks a constraint."""


def verify_shardings(module: Module) -> Iterator[Diagnostic]:
    """What is wrong with the sdy attributes of `module`, in source order."""
    meshes = {op["sym_name"]: op["mesh"] for op in module.body.ops if op.name == "sdy.mesh"}
    checker = _Checker(meshes)
    sizes = {mesh.size for mesh in meshes.values() if mesh.axes}
    if len(sizes) > 1:
        last = [op for op in module.body.ops if op.name == "sdy.mesh"][-1]
        text = ", ".join(map(str, sorted(sizes)))
        yield Diagnostic(last.location, f"all meshes of a module must have as many devices, got {text}", last.name)
    for op in module.body.ops:
        yield from checker.walk(op, frozenset())


class _Checker:
    def __init__(self, meshes: dict[str, sdy.Mesh]) -> None:
        self.meshes = meshes
        self.arguments: dict[Value, sdy.TensorSharding] = {}

    def walk(self, op: Op, manual: frozenset[str]) -> Iterator[Diagnostic]:
        """Checks `op`, inside computations manual over `manual`, and all ops in it."""
        try:
            self._op(op, manual)
        except _Fault as fault:
            yield Diagnostic(op.location, str(fault), op.name)
        if not op.regions:
            return
        if op.name == "sdy.manual_computation":
            manual |= frozenset(op["manual_axes"].axes)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    if inner.regions or inner.discardable or inner.name.startswith("sdy."):
                        yield from self.walk(inner, manual)

    def _op(self, op: Op, manual: frozenset[str]) -> None:
        if isinstance(op, Function):
            self._entries("argument", op.argument_attributes, op.type.inputs)
            for block in op.regions[0].blocks[:1]:
                for value, attributes in zip(block.arguments, op.argument_attributes, strict=True):
                    sharding = attributes.get(SHARDING_NAME)
                    if isinstance(sharding, sdy.TensorSharding):
                        self.arguments[value] = sharding
            self._entries("result", op.result_attributes, op.type.results)
        given = op.discardable.get(SHARDING_NAME)
        if given is not None and not isinstance(op, Function):
            if not isinstance(given, sdy.ShardingPerValue):
                raise _Fault(f"{SHARDING_NAME} of an op must be a #sdy.sharding_per_value")
            self._per_value("result", given, op.result_types, manual)
        rule = op.discardable.get(RULE_NAME)
        if rule is not None:
            if not isinstance(rule, sdy.OpShardingRule):
                raise _Fault(f"{RULE_NAME} must be a #sdy.op_sharding_rule")
            _check_rule(rule, op)
        if not op.name.startswith("sdy."):
            return
        sharded = op.name in ("sdy.sharding_constraint", "sdy.reshard")
        if sharded or (op.name == "sdy.data_flow_edge" and op["sharding"] is not None):
            self._sharding(op["sharding"], op.result.type, manual)
        elif op.name == "sdy.manual_computation":
            self._manual(op, manual)
        elif op.definition is not None and "out_sharding" in op.definition.attribute_table:
            self._sharding(op["out_sharding"], op.result.type, manual)
            self._collective(op)
        elif op.name == "sdy.named_computation":
            for kind, given, values in (
                ("operand", op["in_shardings"], op.operand_types),
                ("result", op["out_shardings"], op.result_types),
            ):
                if given is not None:
                    self._per_value(kind, given, values, manual)

    def _entries(self, kind: str, entries: Sequence[object], types: Sequence[Type]) -> None:
        for index, (attributes, type) in enumerate(zip(entries, types, strict=True)):
            sharding = attributes.get(SHARDING_NAME)  # type: ignore[attr-defined]
            if sharding is None:
                continue
            if not isinstance(sharding, sdy.TensorSharding):
                raise _Fault(f"{kind} {index}: {SHARDING_NAME} must be a #sdy.sharding")
            with _Prefix(f"{kind} {index}"):
                self._sharding(sharding, type, frozenset())

    def _per_value(self, kind: str, given: sdy.ShardingPerValue, types: Sequence[Type], manual: frozenset[str]) -> None:
        if not types and len(given.shardings) == 1 and not given.shardings[0].dimensions:
            return
        if len(given.shardings) != len(types):
            raise _Fault(f"{len(given.shardings)} shardings for {len(types)} {kind}s")
        for index, (sharding, type) in enumerate(zip(given.shardings, types, strict=True)):
            with _Prefix(f"{kind} {index}"):
                self._sharding(sharding, type, manual)

    def mesh(self, given: SymbolRefAttr | sdy.Mesh) -> sdy.Mesh:
        if isinstance(given, sdy.Mesh):
            return given
        if given.root not in self.meshes:
            known = ", ".join("@" + name for name in self.meshes) or "none"
            raise _Fault(f"unknown mesh @{given.root}; the module's meshes: {known}")
        return self.meshes[given.root]

    def _sharding(self, sharding: sdy.TensorSharding, type: Type, manual: frozenset[str]) -> None:
        mesh = self.mesh(sharding.mesh)
        extra = bool(sharding.dimensions or sharding.replicated or sharding.unreduced)
        if mesh.is_maximal:
            if extra:
                raise _Fault("a sharding on a maximal mesh has rank 0 and no replicated or unreduced axes")
            return
        if isinstance(type, TupleType) and len(type.types) == 1:
            type = type.types[0]
        if not isinstance(type, TensorType):
            if extra:
                raise _Fault(f"a value of type {type} has a sharding of rank 0 without replicated or unreduced axes")
            return
        if len(sharding.dimensions) != type.rank:
            raise _Fault(f"a sharding of rank {len(sharding.dimensions)} on a tensor of rank {type.rank}")
        for index, dimension in enumerate(sharding.dimensions):
            if dimension.priority is not None and dimension.is_closed and not dimension.axes:
                raise _Fault(f"dimension {index} is empty and closed, so it can have no priority")
        lists = [dimension.axes for dimension in sharding.dimensions]
        check_axes([*lists, sharding.replicated, sharding.unreduced], mesh)
        for name, axes in (("replicated", sharding.replicated), ("unreduced", sharding.unreduced)):
            if list(axes) != sort_axes(axes, mesh):
                raise _Fault(f"{name} axes must stand in the order of the mesh, got {sdy.format_axes(axes)}")
        for axes in (*lists, sharding.replicated, sharding.unreduced):
            for axis in axes:
                if axis.name in manual:
                    raise _Fault(f'axis "{axis.name}" is already manual in an enclosing sdy.manual_computation')

    def _collective(self, op: Op) -> None:
        """A collective's axes, and what they make of the operand's sharding where that is told."""
        made: sdy.TensorSharding = op["out_sharding"]
        mesh = self.mesh(made.mesh)
        if mesh.is_maximal or not isinstance(op.result.type, TensorType):
            return
        check_axes(collective_axes(op), mesh)
        given = self._sharding_of(op.operands[0])
        if given is None:
            return
        other = self.mesh(given.mesh)
        if other.axes != mesh.axes or (other != mesh and op.name != "sdy.collective_permute"):
            raise _Fault(f"the operand is sharded over another mesh than the result: {other.format()}")
        fault = collective_fault(op, given, mesh)
        if fault is not None:
            raise _Fault(fault)

    def _sharding_of(self, value: Value) -> sdy.TensorSharding | None:
        """The sharding that a value is given where it is made; None when it is given none."""
        op = value.defining_op
        if op is None:
            return self.arguments.get(value)
        for name in ("out_sharding", "sharding"):
            if op.definition is not None and op.name.startswith("sdy.") and name in op.definition.attribute_table:
                found: sdy.TensorSharding | None = op[name]
                return found
        given = op.discardable.get(SHARDING_NAME)
        return given.shardings[value.index] if isinstance(given, sdy.ShardingPerValue) else None

    def _manual(self, op: Op, outer: frozenset[str]) -> None:
        axes = op["manual_axes"].axes
        for name in axes:
            if name in outer:
                raise _Fault(f'axis "{name}" is already manual in an enclosing sdy.manual_computation')
        block = op.region("body").block
        shardings = [*op["in_shardings"].shardings, *op["out_shardings"].shardings]
        meshes = {self.mesh(sharding.mesh) for sharding in shardings if self.mesh(sharding.mesh).axes}
        for name in axes:
            if shardings and not any(mesh.axis_size(name) for mesh in meshes):
                raise _Fault(f'unknown manual axis "{name}"')
        if len(meshes) > 1:
            raise _Fault("all in_shardings and out_shardings must be on one mesh")
        local = frozenset(axes)
        self._manual_values("operand", op.operands, block.arguments, op["in_shardings"], local, outer)
        self._manual_values("result", op.results, block.terminator.operands, op["out_shardings"], local, outer)

    def _manual_values(
        self,
        kind: str,
        whole: Sequence[Value],
        parts: Sequence[Value],
        given: sdy.ShardingPerValue,
        axes: frozenset[str],
        outer: frozenset[str],
    ) -> None:
        if not whole and not parts and not given.shardings:
            return
        self._per_value(kind, given, [value.type for value in whole], outer)
        if len(whole) != len(parts):
            raise _Fault(f"{len(whole)} {kind}s of the op and {len(parts)} {kind}s of the body")
        for index, (value, part, sharding) in enumerate(zip(whole, parts, given.shardings, strict=True)):
            if isinstance(value.type, TensorType):
                with _Prefix(f"{kind} {index}"):
                    self._manual_value(value.type, part.type, sharding, axes)

    def _manual_value(self, whole: TensorType, part: Type, sharding: sdy.TensorSharding, axes: frozenset[str]) -> None:
        mesh = self.mesh(sharding.mesh)
        shape: list[int | None] = []
        for index, (size, dimension) in enumerate(zip(whole.shape, sharding.dimensions, strict=True)):
            is_manual = [axis.name in axes for axis in dimension.axes]
            if is_manual != sorted(is_manual, reverse=True):
                raise _Fault(f"dimension {index}: manual axes must come before free ones, got {dimension.format()}")
            count = 1
            for axis in dimension.axes:
                count *= axis.size(mesh) if axis.name in axes else 1
            if size is not None and size % count:
                raise _Fault(f"dimension {index} of size {size} is not divisible by its manual axes' size {count}")
            shape.append(None if size is None else size // count)
        if whole.with_shape(tuple(shape)) != part:
            raise _Fault(f"the body has {part} where the sharding of {whole} gives {whole.with_shape(tuple(shape))}")


class _Prefix:
    """Adds which value it is to a fault."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, _Fault):
            raise _Fault(f"{self.text}: {fault}") from None


def sort_axes(axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> list[sdy.AxisRef]:
    """`axes` in the order of the mesh, sub-axes by where they start."""

    def key(axis: sdy.AxisRef) -> tuple[int, tuple[int, int]]:
        size = mesh.axis_size(axis.name)
        assert size is not None
        return mesh.axis_position(axis.name), axis.interval(size)

    return sorted(axes, key=key)


def check_axes(lists: Sequence[Sequence[sdy.AxisRef]], mesh: sdy.Mesh) -> None:
    """Raises when an axis is unknown, a sub-axis does not fit, two overlap, or two neighbours could be one."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for axes in lists:
        previous: sdy.AxisRef | None = None
        for axis in axes:
            size = mesh.axis_size(axis.name)
            if size is None:
                raise _Fault(f'unknown axis "{axis.name}"; the mesh has {mesh.format()}')
            _check_sub_axis(axis, size)
            start, stop = axis.interval(size)
            for other_start, other_stop in seen.setdefault(axis.name, []):
                if (start < other_stop and other_start < stop) or (start, stop) == (other_start, other_stop):
                    raise _Fault(f"axis {axis.format()} is used twice, or overlaps with another part of itself")
            seen[axis.name].append((start, stop))
            if previous and previous.name == axis.name and previous.interval(size)[1] == start:
                raise _Fault(f"{previous.format()} and {axis.format()} follow one another and must be one axis")
            previous = axis


def _check_sub_axis(axis: sdy.AxisRef, size: int) -> None:
    info = axis.sub_axis_info
    if info is None:
        return
    if info.pre_size < 1:
        raise _Fault(f"the pre-size of {axis.format()} must be at least 1")
    if info.size <= 1:
        raise _Fault(f"the size of sub-axis {axis.format()} must be greater than 1")
    if size % (info.pre_size * info.size):
        raise _Fault(f"sub-axis {axis.format()} does not divide its axis of size {size}")
    if info.size == size:
        raise _Fault(f"sub-axis {axis.format()} is the whole axis and must be written so")


def _check_rule(rule: sdy.OpShardingRule, op: Op) -> None:
    count, used = len(rule.factor_sizes), set()
    in_results = {f for mapping in rule.results for dimension in mapping.dimensions for f in dimension.factors}
    sides = (("operand", rule.operands, op.operand_types), ("result", rule.results, op.result_types))
    for kind, mappings, types in sides:
        if len(mappings) != len(types) or not mappings:
            raise _Fault(f"the sharding rule maps {len(mappings)} {kind}s, the op has {len(types)}")
        for index, (mapping, type) in enumerate(zip(mappings, types, strict=True)):
            if not isinstance(type, TensorType) or not type.is_static:
                raise _Fault(f"sharding rule: {kind} {index} must be a static tensor, got {type}")
            if len(mapping.dimensions) != type.rank:
                given = len(mapping.dimensions)
                raise _Fault(f"sharding rule: {kind} {index} is mapped with rank {given}, not {type.rank}")
            factors = [f for dimension in mapping.dimensions for f in dimension.factors]
            if len(set(factors)) != len(factors):
                raise _Fault(f"sharding rule: {kind} {index} has a factor twice")
            for dimension in mapping.dimensions:
                if not dimension.factors:
                    raise _Fault(f"sharding rule: {kind} {index} has a dimension without factors")
                if any(not 0 <= f < count for f in dimension.factors):
                    raise _Fault(f"sharding rule: {kind} {index} has a factor that is not among the {count} given")
                if len(dimension.factors) > 1 and any(rule.factor_sizes[f] == 1 for f in dimension.factors):
                    raise _Fault(f"sharding rule: {kind} {index} has a factor of size 1 beside others")
            used.update(factors)
    for factor in range(count):
        if factor not in used:
            raise _Fault(f"sharding rule: no operand or result has factor {sdy.factor_symbol(factor)}")
    special = [*rule.reduction, *rule.need_replication, *rule.permutation]
    if len(set(special)) != len(special):
        raise _Fault("sharding rule: a factor is of one special kind only")
    for group in (rule.reduction, rule.need_replication, rule.permutation, rule.blocked_propagation):
        if list(group) != sorted(set(group)) or any(not 0 <= f < count for f in group):
            raise _Fault("sharding rule: special factors must be in range, ascend and differ")
    for factor in rule.reduction:
        if factor in in_results:
            raise _Fault(f"sharding rule: reduction factor {sdy.factor_symbol(factor)} is in a result")
