"""OpSharding and the groups of processes of collectives as HLO text spells them. Source: xla_data.proto."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder.hlo.printer import integers
from spmd.support.protobuf import Message

_REPLICATED, _MAXIMAL, _TUPLE, _OTHER, _MANUAL, _UNKNOWN, _UNREDUCED = range(7)
_KINDS = {
    _REPLICATED: "replicated",
    _MANUAL: "manual",
    _UNKNOWN: "unknown",
    _UNREDUCED: "unreduced",
}


def sharding_text(proto: Message) -> str:
    """Return XLA's text of OpSharding; ValueError where it is none."""
    kind = proto.number(1)
    if 14 in proto:
        return _named(proto.message(14))
    if kind == _TUPLE:
        return f"{{{', '.join(map(sharding_text, proto.messages(5)))}}}"
    if kind == _MAXIMAL:
        return f"{{maximal device={(proto.numbers(4) or [0])[0]}}}"
    group = f" shard_{'like' if proto.number(13) else 'as'} {proto.number(12)}" if proto.number(11) else ""
    if kind != _OTHER:
        return f"{{{_KINDS.get(kind, 'unknown')}{group}}}"
    tiles = ",".join(map(str, proto.numbers(3)))
    last = [_KINDS.get(each, "unknown") for each in proto.numbers(8)]
    tail = " last_tile_dim_replicate" if proto.number(6) else f" last_tile_dims={{{', '.join(last)}}}" if last else ""
    return f"{{devices=[{tiles}]{_devices(proto.numbers(4), proto.numbers(9), proto.numbers(10))}{tail}{group}}}"


def _devices(listed: Sequence[int], sizes: Sequence[int], order: Sequence[int]) -> str:
    """Return devices one by one, or counted up in `sizes` and transposed."""
    if not sizes:
        return ",".join(map(str, listed))
    transposed = "" if list(order) == list(range(len(sizes))) else f"T({','.join(map(str, order))})"
    return f"<=[{','.join(map(str, sizes))}]{transposed}"


def groups_text(proto: Message) -> str | None:
    """Return the groups of processes of an instruction; None where it has none."""
    if 92 in proto:
        iota = proto.message(92)
        sizes = f"[{iota.number(1)},{iota.number(2)}]"
        return sizes + _devices((), iota.numbers(3), iota.numbers(4))
    if 93 in proto:
        return _mesh_groups(proto.message(93))
    groups = proto.message(87).messages(1) if 87 in proto else proto.messages(49)
    is_collective = 87 in proto or 49 in proto
    return "{" + ",".join(integers(group.numbers(1)) for group in groups) + "}" if is_collective else None


def _mesh_groups(proto: Message) -> str:
    """Return groups along axes of a mesh."""
    axes, text = _mesh(proto.message(1))
    return f"{text} {_listed(proto.messages(2), axes)}"


def _named(proto: Message) -> str:
    """Return a sharding by the axes of a mesh, a list of them for each dimension."""
    axes, text = _mesh(proto.message(2))
    dimensions = [_listed(each.messages(1), axes, is_open=not each.number(2)) for each in proto.messages(3)]
    others = [
        f", {name}={reduction}{_listed(proto.messages(field), axes)}"
        for field, name, reduction in (
            (4, "replicated", ""), (5, "unreduced", ("", "max", "min")[proto.number(8)]), (7, "manual", ""),
        )
        if field in proto
    ]  # fmt: skip
    return f"{{{text}, [{', '.join(dimensions)}]{''.join(others)}}}"


def _mesh(proto: Message) -> tuple[Sequence[str], str]:
    """Return the names of a mesh's axes, and the text of the mesh."""
    axes = [(axis.text(1), axis.number(2)) for axis in proto.messages(1)]
    devices = ""
    if 3 in proto:
        iota = proto.message(3)
        devices = f", device_ids=({_devices((), iota.numbers(1), iota.numbers(2)).removeprefix('<=')})"
    elif 2 in proto:
        devices = f", device_ids=({','.join(map(str, proto.numbers(2)))})"
    sizes = ",".join(f"'{name}'={size}" for name, size in axes)
    return [name for name, _ in axes], f"mesh[{sizes}]{devices}"


def _listed(references: Sequence[Message], axes: Sequence[str], *, is_open: bool = False) -> str:
    """Return axes, or parts of them, in braces, with a mark where more may come."""
    texts = []
    for reference in references:
        number, part = reference.number(1), reference.message(2)
        if not 0 <= number < len(axes):
            raise ValueError(f"axis {number} of a mesh of {len(axes)}")
        texts.append(f"'{axes[number]}'" + (f":({part.number(1)}){part.number(2)}" if 2 in reference else ""))
    return "{" + ", ".join([*texts, *["?"] * is_open]) + "}"
