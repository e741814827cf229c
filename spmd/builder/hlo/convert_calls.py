"""Ops with regions, calls and streams as HLO instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd import types as t
from spmd.builder.hlo.aliases import alias_text
from spmd.builder.hlo.collective import TRANSFER_PAIRS, pairs_text
from spmd.builder.hlo.convert import window_text
from spmd.builder.hlo.printer import Body, converts, integers
from spmd.builder.shape import Shape
from spmd.dialects.bounded import bound_shape
from spmd.dialects.custom_call import TYPED_TEXT, output_type
from spmd.dialects.custom_call_targets import options
from spmd.ir import Op, Region, Value, captured_values
from spmd.ir.attributes import StringAttr
from spmd.support.arrays import Array
from spmd.syntax.attribute_printer import format_attribute

_REQUEST = Shape.scalar_shape("u32")


def _to_apply(body: Body, op: Op, index: int = 0) -> str:
    return "to_apply=" + body.applied(op.regions[index])


@converts("stablehlo.reduce", "stablehlo.map")
def _reduce(body: Body, op: Op) -> None:
    opcode = op.name.partition(".")[2]
    body.instruction(op, opcode, op.operands, ["dimensions=" + integers(op["dimensions"]), _to_apply(body, op)])


@converts("chlo.scan")
def _scan(body: Body, op: Op) -> None:
    attributes = ["dimensions=" + integers([op["dimension"]]), f"num_carries={len(op.operand_group('inits'))}"]
    flags = [f"{name}={str(op[name]).lower()}" for name in ("is_reverse", "is_associative") if op[name]]
    body.instruction(op, "scan", op.operands, [*attributes, *flags, _to_apply(body, op)])


@converts("stablehlo.reduce_window")
def _reduce_window(body: Body, op: Op) -> None:
    names = ("window_dimensions", "window_strides", "padding", "base_dilations", "window_dilations")
    window = window_text(*(op[name] for name in names))
    body.instruction(op, "reduce-window", op.operands, [window, _to_apply(body, op)])


@converts("stablehlo.select_and_scatter")
def _select_and_scatter(body: Body, op: Op) -> None:
    size = op["window_dimensions"] or (1,) * op.operands[0].tensor.rank
    window = window_text(size, op["window_strides"], op["padding"], None, None)
    computations = [
        f"{name}={body.applied(region)}" for name, region in zip(("select", "scatter"), op.regions, strict=True)
    ]
    body.instruction(op, "select-and-scatter", op.operands, [window, *computations])


@converts("stablehlo.sort")
def _sort(body: Body, op: Op) -> None:
    number = op["dimension"] % op.operands[0].tensor.rank
    stable = ["is_stable=true"] if op["is_stable"] else []
    body.instruction(op, "sort", op.operands, ["dimensions=" + integers([number]), *stable, _to_apply(body, op)])


# --- control flow ----------------------------------------------------------------------------------------------------


@converts("func.call")
def _call(body: Body, op: Op) -> None:
    body.instruction(op, "call", op.operands, ["to_apply=" + body.printer.function(op["callee"])])


@converts("stablehlo.composite")
def _composite(body: Body, op: Op) -> None:
    fields = [f'composite.name="{op["name"]}"', f'composite.version="{op["version"]}"']
    composite_dictionary = op["composite_attributes"]
    if composite_dictionary.entries:
        fields.insert(0, f"composite.attributes={format_attribute(composite_dictionary)}")
    attributes = ["to_apply=" + body.printer.function(op["decomposition"]), "is_composite=true"]
    body.instruction(op, "call", op.operands, [*attributes, "frontend_attributes={" + ",".join(fields) + "}"])


@converts("stablehlo.if", "stablehlo.case")
def _conditional(body: Body, op: Op) -> None:
    """Write a conditional; each branch takes what it uses from outside, as one value or a tuple."""
    operands, branches = [], []
    for index, region in enumerate(op.regions):
        used = _used(region)
        operands.append(body.joined(used))
        branches.append(body.closed(region.block, used, stem=f"branch_{index}"))
    chosen = (
        ["true_computation=" + branches[0], "false_computation=" + branches[1]]
        if op.name == "stablehlo.if"
        else ["branch_computations={" + ", ".join(branches) + "}"]
    )
    body.instruction(op, "conditional", [op.operands[0], *operands], chosen)


def _used(region: Region) -> list[Value]:
    """Return the values from outside that a region uses, without constants, which are written again inside."""
    probe = Op("region", regions=[region])
    return [value for value in captured_values(probe) if not _is_constant(value)]


def _is_constant(value: Value) -> bool:
    origin = value.defining_op
    return origin is not None and origin.name == "stablehlo.constant"


@converts("stablehlo.while")
def _while(body: Body, op: Op) -> None:
    """Write a loop. Its state is one tuple: the loop's values, then those used from outside, which do not change."""
    outside = [value for value in captured_values(op) if not _is_constant(value)]
    types = [*op.result_types, *(value.type for value in outside)]
    names = [*body.names_of(op.operands), *body.names_of(outside)]
    state = names[0] if len(names) == 1 else body.tuple(types, names)
    computations = []
    for name, region, returned in zip(("condition", "body"), op.regions, ((), outside), strict=True):
        arguments = [*region.block.arguments, *outside]
        computations.append(f"{name}={body.closed(region.block, arguments, returned=returned, stem=name)}")
    whole = types[0] if len(types) == 1 else t.TupleType(tuple(types))
    loop = body.add("while", whole, [state], computations)
    if len(types) == 1:
        body.name_value(op.result, loop)
    else:
        body.name_elements(op.results, loop)


#: Attributes of calls that only HLO text has (spmd/builder/hlo/calls.py).
_OF_HLO = ("window", "dim_labels", "feature_group_count", "batch_group_count", "padding_type", "operand_precision")


def _approximate_top_k(body: Body, op: Op) -> None:
    """Write the first elements along a dimension, in the order of the called computation, as a sort and a slice."""
    count, config = len(op.results), options(op)
    dimension, most = config["reduction_dim"], config["top_k"]
    assert isinstance(dimension, int) and isinstance(most, int)
    inputs = op.operands[:count]
    (comparator,) = map(body.printer.function, op["called_computations"])
    whole = _whole(inputs)
    attributes = ["dimensions=" + integers([dimension]), "is_stable=true", f"to_apply={comparator}"]
    ordered = body.add("sort", whole, body.names_of(inputs), attributes)
    for index, (value, result) in enumerate(zip(inputs, op.results, strict=True)):
        name = ordered if count == 1 else body.element(ordered, value.type, index)
        ends = [most if number == dimension else size or 0 for number, size in enumerate(bound_shape(value.tensor))]
        cut = "slice={" + ", ".join(f"[0:{end}]" for end in ends) + "}"
        body.name_value(result, body.add("slice", result.type, [name], [cut]))


@converts("stablehlo.custom_call")
def _custom_call(body: Body, op: Op) -> None:
    if op["call_target_name"] == "ApproxTopK":
        _approximate_top_k(body, op)
        return
    attributes = [f"custom_call_target={_quoted(op['call_target_name'])}"]
    if op["has_side_effect"]:
        attributes.append("custom_call_has_side_effect=true")
    versions = {2: "STATUS_RETURNING", 3: "STATUS_RETURNING_UNIFIED", 4: "TYPED_FFI"}
    called = op["called_computations"]
    if called:
        attributes.append(f"called_computations={{{', '.join(map(body.printer.function, called))}}}")
    attributes += [
        f"{name}={value.value}"
        for name, value in op.discardable.items()
        if name in _OF_HLO and isinstance(value, StringAttr)
    ]
    typed = op.discardable.get("mhlo.backend_config")  # as JAX spells the options of a typed call
    version, config = (op["api_version"], op["backend_config"]) if typed is None else (4, typed)
    if version in versions:
        attributes.append(f"api_version=API_VERSION_{versions[version]}")
    text = op.discardable.get(TYPED_TEXT)
    config = text.value if isinstance(text, StringAttr) else config
    if config:
        attributes.append(f"backend_config={_quoted(config) if isinstance(config, str) else format_attribute(config)}")
    layouts = op["operand_layouts"]
    if layouts is not None:
        shapes = [
            _laid_out(Shape.of(type), iter([layout])) for type, layout in zip(op.operand_types, layouts, strict=True)
        ]
        attributes.append(f"operand_layout_constraints={{{', '.join(map(str, shapes))}}}")
    aliases = [
        alias_text((alias.output_tuple_indices, (alias.operand_index, alias.operand_tuple_indices)))
        for alias in op["output_operand_aliases"]
    ]
    if aliases:
        attributes.append(f"output_to_operand_aliasing={{{', '.join(aliases)}}}")
    whole = Shape.of(output_type(op) if op.results else t.TupleType(()))
    shape = whole if layouts is None else _laid_out(whole, iter(op["result_layouts"]))
    name = body.add(
        "custom-call", shape, body.names_of(op.operands), [*attributes, *body.printer.sharding(op.discardable)]
    )
    for value, leaf in zip(op.results, _leaves(body, shape, name), strict=True):
        body.name_value(value, leaf)


def _laid_out(shape: Shape, layouts: Iterator[Array]) -> Shape:
    """Return the shape, whose arrays and tokens have the next of `layouts`."""
    if shape.is_tuple():
        return Shape.tuple_shape([_laid_out(part, layouts) for part in shape.parts])
    order = next(layouts).tolist()
    return shape.with_layout(order) if shape.is_array() else shape


def _leaves(body: Body, shape: Shape, name: str) -> list[str]:
    """Return the names of the parts, in order, of the value `name`, all that are no tuples."""
    if not shape.is_tuple():
        return [name]
    parts = [(part, body.element(name, part, index)) for index, part in enumerate(shape.parts)]
    return [leaf for part, element in parts for leaf in _leaves(body, part, element)]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@converts("stablehlo.optimization_barrier")
def _barrier(body: Body, op: Op) -> None:
    body.instruction(op, "opt-barrier", [body.joined(op.operands)])


@converts("stablehlo.after_all", "stablehlo.create_token")
def _after_all(body: Body, op: Op) -> None:
    body.instruction(op, "after-all", op.operands)


# --- shardings -------------------------------------------------------------------------------------------------------


def _hint(body: Body, target: str, type: t.Type, operand: str, sharding: str) -> str:
    """Return a custom call that says how its result is laid out."""
    return body.add("custom-call", type, [operand], [f'custom_call_target="{target}"', f"sharding={sharding}"])


@converts("sdy.sharding_constraint", "sdy.reshard")
def _constraint(body: Body, op: Op) -> None:
    sharding = body.printer.shardings.text(op["sharding"])
    body.name_value(op.result, _hint(body, "Sharding", op.result.type, body.name_of(op.operands[0]), sharding))


@converts("sdy.manual_computation")
def _manual_computation(body: Body, op: Op) -> None:
    """Write the blocks of the operands, the body's ops, each marked as of blocks, and the whole results."""
    printer, block, axes = body.printer, op.regions[0].block, op["manual_axes"].axes
    shardings = [*op["in_shardings"].shardings, *op["out_shardings"].shardings]
    if not shardings:
        raise ValueError("a manual computation without operands and results is not written")
    outside = [printer.shardings.text(sharding) for sharding in shardings]
    with printer.inside(shardings[0], axes):
        inside = [printer.shardings.text(sharding) for sharding in shardings]
    for value, argument, whole, part in zip(op.operands, block.arguments, outside, inside, strict=False):
        placed = _hint(body, "Sharding", value.type, body.name_of(value), whole)
        body.name_value(argument, _hint(body, "SPMDFullToShardShape", argument.type, placed, part))
    with printer.inside(shardings[0], axes):
        body.write(block)
        names = body.names_of(block.terminator.operands)
    count = len(op.operands)
    for value, result, name, whole, part in zip(
        block.terminator.operands, op.results, names, outside[count:], inside[count:], strict=True
    ):
        placed = _hint(body, "Sharding", value.type, name, part)
        body.name_value(result, _hint(body, "SPMDShardToFullShape", result.type, placed, whole))


# --- streams and channels --------------------------------------------------------------------------------------------


def _whole(values: Sequence[Value]) -> t.Type:
    return values[0].type if len(values) == 1 else t.TupleType(tuple(value.type for value in values))


@converts("stablehlo.infeed")
def _infeed(body: Body, op: Op) -> None:
    *data, token = op.results
    config = [f"infeed_config={_quoted(op['infeed_config'])}"] if op["infeed_config"] else []
    kind = t.TupleType((_whole(data), t.TOKEN))
    infeed = body.add("infeed", kind, [body.name_of(op.operands[0])], config)
    item = body.element(infeed, _whole(data), 0)
    if len(data) == 1:
        body.name_value(data[0], item)
    else:
        body.name_elements(data, item)
    body.name_value(token, body.element(infeed, t.TOKEN, 1))


@converts("stablehlo.outfeed")
def _outfeed(body: Body, op: Op) -> None:
    *data, token = op.operands
    shape = Shape.of(_whole(data))
    config = [f"outfeed_config={_quoted(op['outfeed_config'])}"] if op["outfeed_config"] else []
    body.instruction(op, "outfeed", [body.joined(data), token], [f"outfeed_shape={shape}", *config])


def _transfer(op: Op) -> list[str]:
    host = ["is_host_transfer=true"] if op["is_host_transfer"] else []
    pairs = []
    if op["source_target_pairs"] is not None:
        pairs = [f"frontend_attributes={{{TRANSFER_PAIRS}={pairs_text(op)}}}"]
    return [f"channel_id={op['channel_handle'].handle}", *host, *pairs]


@converts("stablehlo.send")
def _send(body: Body, op: Op) -> None:
    *data, token = op.operands
    context = Shape.tuple_shape([Shape.of(_whole(data)), _REQUEST, Shape.token_shape()])
    send = body.add("send", context, [body.joined(data), body.name_of(token)], _transfer(op))
    body.name_value(op.result, body.add("send-done", t.TOKEN, [send], _transfer(op)))


@converts("stablehlo.recv")
def _recv(body: Body, op: Op) -> None:
    *data, token = op.results
    kind = Shape.of(_whole(data))
    context = Shape.tuple_shape([kind, _REQUEST, Shape.token_shape()])
    recv = body.add("recv", context, [body.name_of(op.operands[0])], _transfer(op))
    both = Shape.tuple_shape([kind, Shape.token_shape()])
    done = body.add("recv-done", both, [recv], _transfer(op))
    body.name_value(data[0], body.element(done, data[0].type, 0))
    body.name_value(token, body.element(done, t.TOKEN, 1))
