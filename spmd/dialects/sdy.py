"""The sdy (Shardy) dialect: meshes, sharding constraints, manual computations, and collectives on shardings.

Source: Shardy's dialect documentation, "Operations". Constraints that involve meshes or enclosing ops are checked over
the module in sdy_verify.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.core import AttributeDef, OpDef, Trait, attribute, define, operand, region, result
from spmd.dialects.declarations import define_constant
from spmd.dialects.kinds import I64, STRING, integer_enum, struct
from spmd.dialects.type_sets import ANY_TYPE, TypeSet
from spmd.ir import Op
from spmd.types import I32, TensorType, Type

PROPAGATION_DIRECTION = integer_enum(I32, "NONE", "FORWARD", "BACKWARD", "BOTH")
REDUCTION_OP = integer_enum(I32, "sum", "max", "min")
SHARDING = struct(sdy.TensorSharding)
SHARDING_PER_VALUE = struct(sdy.ShardingPerValue)
AXIS_LIST = struct(sdy.AxisRefList)
AXIS_LISTS = struct(sdy.ListOfAxisRefLists)

_RANKED = TypeSet("ranked tensor", lambda type: isinstance(type, TensorType))


def _as_operand(declared: OpDef) -> None:
    """Declare that the result has exactly the operand's type, including dynamic sizes, bounds and encoding."""
    declared.infer(lambda op: [op.operands[0].type])
    declared.constraint("", "the result must have the operand's type", on_results=True)(
        lambda op: None if op.result.type is op.operands[0].type else f"{op.result.type} and {op.operands[0].type}"
    )


MESH = define(
    "sdy.mesh",
    attributes=[attribute("sym_name", STRING), attribute("mesh", struct(sdy.Mesh))],
    assembly="custom<CustomCallTarget>($sym_name) `=` $mesh attr-dict",
)


def _resharding(name: str, traits: tuple[Trait, ...]) -> OpDef:
    """Declare an identity op that gives its result a sharding."""
    op_def = define(
        name,
        operands=[operand("input", ANY_TYPE)],
        attributes=[attribute("sharding", SHARDING)],
        results=[result("result", ANY_TYPE)],
        assembly="$input $sharding attr-dict `:` type($result)",
        traits=(Trait.SAME_TYPE, *traits),
    )
    _as_operand(op_def)
    return op_def


SHARDING_CONSTRAINT = _resharding("sdy.sharding_constraint", ())
RESHARD = _resharding("sdy.reshard", (Trait.PURE,))

RETURN = define(
    "sdy.return",
    operands=[operand("results", ANY_TYPE, variadic=True)],
    assembly="attr-dict ($results^ `:` type($results))?",
    traits=(Trait.TERMINATOR, Trait.PURE),
)


def _computation(name: str, operands: str, attributes: Sequence[AttributeDef], head: str) -> OpDef:
    """Declare an op whose region computes its results from its operands; `head` is the start of its form."""
    return define(
        name,
        operands=[operand(operands, ANY_TYPE, variadic=True)],
        attributes=attributes,
        results=[result("results", ANY_TYPE, variadic=True)],
        regions=[region("body")],
        assembly=f"{head} custom<RegionWithArguments>($body) attr-dict `:` functional-type(operands, results)",
        traits=(Trait.ISOLATED,),
    )


MANUAL_COMPUTATION = _computation(
    "sdy.manual_computation",
    "tensors",
    [
        attribute("in_shardings", SHARDING_PER_VALUE),
        attribute("out_shardings", SHARDING_PER_VALUE),
        attribute("manual_axes", struct(sdy.ManualAxes)),
    ],
    "`(` $tensors `)` `in_shardings` `` `=` `` custom<StrippedShardings>($in_shardings)"
    " `out_shardings` `` `=` `` custom<StrippedShardings>($out_shardings) `manual_axes` `` `=` `` $manual_axes",
)

SHARDING_GROUP = define(
    "sdy.sharding_group",
    operands=[operand("input", _RANKED)],
    attributes=[attribute("group_id", I64)],
    assembly="$input `group_id` `` `=` `` $group_id attr-dict `:` type($input)",
)

CONSTANT = define_constant("sdy.constant")


@CONSTANT.infer
def _(op: Op) -> list[Type]:
    return [op["value"].type]


DATA_FLOW_EDGE = define(
    "sdy.data_flow_edge",
    operands=[operand("input", _RANKED)],
    attributes=[attribute("sharding", SHARDING, optional=True)],
    results=[result("result", _RANKED)],
    assembly="$input (`sharding` `` `=` `` $sharding^)? attr-dict `:` type($result)",
    traits=(Trait.SAME_TYPE,),
)
_as_operand(DATA_FLOW_EDGE)

FUNC_DATA_FLOW_EDGE = define(
    "sdy.func_data_flow_edge",
    operands=[operand("operand", _RANKED)],
    results=[result("result", _RANKED)],
    assembly="$operand attr-dict `:` type($result)",
    traits=(Trait.SAME_TYPE,),
)
_as_operand(FUNC_DATA_FLOW_EDGE)


@DATA_FLOW_EDGE.constraint("static shape", "the result must have a static shape")
@FUNC_DATA_FLOW_EDGE.constraint("static shape", "the result must have a static shape")
def _(op: Op) -> str | None:
    type = op.result.type
    return None if not isinstance(type, TensorType) or type.is_static else f"the result must be static, got {type}"


PROPAGATION_BARRIER = define(
    "sdy.propagation_barrier",
    operands=[operand("input", _RANKED)],
    attributes=[attribute("allowed_direction", PROPAGATION_DIRECTION)],
    results=[result("result", _RANKED)],
    assembly=(
        "$input `allowed_direction` `` `=` `` custom<PropagationDirection>($allowed_direction)"
        " attr-dict `:` type($input)"
    ),
    traits=(Trait.PURE, Trait.SAME_TYPE),
)
_as_operand(PROPAGATION_BARRIER)


@PROPAGATION_BARRIER.constraint("direction", "the direction must be NONE, FORWARD, or BACKWARD")
def _(op: Op) -> str | None:
    return "BOTH" if op["allowed_direction"] == "BOTH" else None


NAMED_COMPUTATION = _computation(
    "sdy.named_computation",
    "operands",
    [
        attribute("name", STRING),
        attribute("in_shardings", SHARDING_PER_VALUE, optional=True),
        attribute("out_shardings", SHARDING_PER_VALUE, optional=True),
    ],
    "`` `<` $name `>` `` `(` $operands `)`"
    " (`in_shardings` `` `=` `` custom<StrippedShardings>($in_shardings)^)?"
    " (`out_shardings` `` `=` `` custom<StrippedShardings>($out_shardings)^)?",
)


def _region_types_fault(op: Op) -> str | None:
    block = op.region("body").block
    arguments = [value.type for value in block.arguments]
    if arguments != op.operand_types:
        return f"the body takes {_types(arguments)}, the operands are {_types(op.operand_types)}"
    returned = block.terminator.operand_types
    if returned != op.result_types:
        return f"the body returns {_types(returned)}, the results are {_types(op.result_types)}"
    return None


def _types(types: list[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


NAMED_COMPUTATION.constraint("body", "the body must take the operands and return the results")(_region_types_fault)


def _collective(name: str, assembly: str, *attributes: object) -> OpDef:
    """Declare a collective: global types are unchanged, the sharding becomes `out_sharding`."""
    op_def = define(
        name,
        operands=[operand("tensor", _RANKED)],
        attributes=[*attributes, attribute("out_sharding", SHARDING)],  # type: ignore[list-item]
        results=[result("result", _RANKED)],
        assembly=assembly + " $tensor `out_sharding` `` `=` `` $out_sharding attr-dict `:` type($result)",
        traits=(Trait.SAME_TYPE,),
    )
    _as_operand(op_def)
    return op_def


_REDUCTION = attribute("reduction_op", REDUCTION_OP, default="sum")
_REDUCTION_FORM = "custom<ReductionOp>($reduction_op) "

ALL_GATHER = _collective("sdy.all_gather", "$gathering_axes", attribute("gathering_axes", AXIS_LISTS))
ALL_SLICE = _collective("sdy.all_slice", "$slicing_axes", attribute("slicing_axes", AXIS_LISTS))
ALL_TO_ALL = _collective("sdy.all_to_all", "$params", attribute("params", struct(sdy.AllToAllParamList)))
COLLECTIVE_PERMUTE = _collective("sdy.collective_permute", "")
ALL_REDUCE = _collective(
    "sdy.all_reduce", _REDUCTION_FORM + "$reduction_axes", attribute("reduction_axes", AXIS_LIST), _REDUCTION
)
REDUCE_SCATTER = _collective(
    "sdy.reduce_scatter",
    _REDUCTION_FORM + "$reduce_scatter_axes",
    attribute("reduce_scatter_axes", AXIS_LISTS),
    _REDUCTION,
)
SHARDED_TO_UNREDUCED = _collective("sdy.sharded_to_unreduced", "$axes", attribute("axes", AXIS_LISTS))
REPLICATED_TO_UNREDUCED = _collective("sdy.replicated_to_unreduced", "$axes", attribute("axes", AXIS_LIST))


@ALL_TO_ALL.constraint("params", "params must not be empty, be sorted by source, and use valid dimensions once")
def _(op: Op) -> str | None:
    params = op["params"].params
    if not params:
        return "the parameter list must not be empty"
    rank = op.operands[0].tensor.rank
    dimensions = [dimension for param in params for dimension in (param.source, param.target)]
    for dimension in dimensions:
        if not 0 <= dimension < rank:
            return f"dimension {dimension} is out of range for rank {rank}"
        if dimensions.count(dimension) > 1:
            return f"dimension {dimension} is used twice"
    sources = [param.source for param in params]
    return None if sources == sorted(sources) else f"source dimensions must ascend, got {sources}"


@REPLICATED_TO_UNREDUCED.constraint("axes", "axes must not be empty")
def _(op: Op) -> str | None:
    return None if op["axes"].axes else "the list of axes must not be empty"
