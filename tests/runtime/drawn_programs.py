"""Random different programs of the processes of a grid, which communicate in groups, in loops and branches, or not."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import spmd

_T, _TOKEN = "tensor<4xf32>", "!stablehlo.token"


@dataclass
class _Program:
    """The lines of one process's program; `value` is what it has come to."""

    lines: list[str] = field(default_factory=list)
    value: str = "%x"
    token: str = "%token"
    names: int = 0

    def new(self) -> str:
        self.names += 1
        return f"%v{self.names}"


def _local(p: _Program, name: str) -> None:
    result = p.new()
    p.lines.append(f"{result} = stablehlo.{name} {p.value} : {_T}")
    p.value = result


def _collective(p: _Program, kind: str, group: list[int], size: int) -> None:
    result, total = p.new(), p.new()
    if kind == "all_reduce":
        rest = [rank for rank in range(size) if rank not in group]  # a group that never comes
        width = max(len(group), len(rest))
        rows = [row + [-1] * (width - len(row)) for row in (group, rest) if row]
        p.lines.append(
            f'{result} = "stablehlo.all_reduce"({p.value}) <{{replica_groups = dense<{rows}> : '
            f"tensor<{len(rows)}x{width}xi64>}}> ({{\n^bb0(%l: tensor<f32>, %r: tensor<f32>):\n"
            f"%s = stablehlo.maximum %l, %r : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}}) : ({_T}) -> {_T}"
        )
    else:
        pairs = [[rank, group[(index + 1) % len(group)]] for index, rank in enumerate(group)]
        p.lines.append(
            f'{result} = "stablehlo.collective_permute"({p.value}) <{{source_target_pairs = dense<{pairs}> : '
            f"tensor<{len(pairs)}x2xi64>}}> : ({_T}) -> {_T}"
        )
    p.lines.append(f"{total} = stablehlo.subtract {result}, {p.value} : {_T}")
    p.value = total


def _transfer(p: _Program, channel: int, *, sends: bool) -> None:
    handle = f"<{{channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>}}>"
    token = p.new()
    if sends:
        p.lines.append(f'{token} = "stablehlo.send"({p.value}, {p.token}) {handle} : ({_T}, {_TOKEN}) -> {_TOKEN}')
    else:
        received, total = p.new(), p.new()
        p.lines.append(f'{received}, {token} = "stablehlo.recv"({p.token}) {handle} : ({_TOKEN}) -> ({_T}, {_TOKEN})')
        p.lines.append(f"{total} = stablehlo.add {received}, {p.value} : {_T}")
        p.value = total
    p.token = token


def _looped(p: _Program, turns: int, body: _Program) -> None:
    """`body`, whose names begin where those of `p` end, `turns` times."""
    loop = p.new()
    p.lines += [
        f"{loop}:3 = stablehlo.while(%i = %zero, %x = {p.value}, %token = {p.token}) : "
        f"tensor<i32>, {_T}, {_TOKEN} cond {{",
        f"%limit = stablehlo.constant dense<{turns}> : tensor<i32>",
        "%holds = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>",
        "stablehlo.return %holds : tensor<i1>\n} do {",
        "%one = stablehlo.constant dense<1> : tensor<i32>\n%next = stablehlo.add %i, %one : tensor<i32>",
        *body.lines,
        f"stablehlo.return %next, {body.value}, {body.token} : tensor<i32>, {_T}, {_TOKEN}\n}}",
    ]
    p.value, p.token = f"{loop}#1", f"{loop}#2"


def draw_programs(seed: int) -> tuple[list[list[spmd.Module]], list[list[np.ndarray]], str]:
    """A table of programs, the arguments of each process, and the texts: they communicate in one order for all."""
    random = np.random.default_rng(seed)
    size = int(random.integers(3, 6))
    programs = [_Program(value="%arg0", token="%start") for _ in range(size)]
    channel = 0
    for _ in range(int(random.integers(2, 6))):
        group = random.permutation(size)[: int(random.integers(2, size + 1))].tolist()
        turns = int(random.integers(0, 4)) if random.integers(2) else None
        targets = [_Program(names=p.names + 100) for p in programs] if turns is not None else programs
        for target in targets:
            if random.integers(2):
                _local(target, ("negate", "floor", "abs")[int(random.integers(3))])
        kind = ("all_reduce", "permute", "transfer")[int(random.integers(3))]
        if kind == "transfer":
            channel += 1
            _transfer(targets[group[0]], channel, sends=True)
            _transfer(targets[group[1]], channel, sends=False)
        else:
            for rank in group:
                _collective(targets[rank], kind, group, size)
        if turns is not None:
            for index, (p, body) in enumerate(zip(programs, targets, strict=True)):
                if index in group or random.integers(2):
                    _looped(p, turns, body)
                p.names = body.names
    texts = [
        f"module attributes {{mhlo.num_replicas = {size} : i32}} {{\nfunc.func @main(%arg0: {_T}) -> {_T} {{\n"
        f"%zero = stablehlo.constant dense<0> : tensor<i32>\n%start = stablehlo.create_token : {_TOKEN}\n"
        + "\n".join(p.lines)
        + f"\nreturn {p.value} : {_T}\n}}\n}}"
        for p in programs
    ]
    arguments = [[random.integers(-4, 5, 4).astype(np.float32)] for _ in range(size)]
    return [[spmd.parse(text)] for text in texts], arguments, "\n".join(texts)
