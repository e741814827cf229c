"""Random chains of sdy's own collectives on one value, as text: each leaves the value what it was, or multiplies it.

A sum over axes that processes hold copies along multiplies by their number, a maximum of copies is what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.partitioner.drawing import Shape, tensor
from tests.partitioner.drawn_axes import (
    MESHES,
    Cuts,
    Mesh,
    PrimePart,
    axes,
    count,
    dealt,
    lists,
    mesh_line,
    orders,
    parts_of,
    sharding,
    shuffled,
    some,
)
from tests.partitioner.drawn_programs import Drawn


@dataclass
class _Chain:
    random: np.random.Generator
    mesh: Mesh
    parts: list[PrimePart]
    shape: Shape
    cuts: Cuts
    unreduced: list[PrimePart] = field(default_factory=list)
    value: str = "%start"
    lines: list[tuple[str, str]] = field(default_factory=list)  # with shardings, without

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def type(self) -> str:
        return tensor(self.shape)

    @property
    def sharding(self) -> str:
        return sharding(self.cuts, self.unreduced)

    @property
    def free(self) -> list[PrimePart]:
        """The parts along which processes hold copies."""
        used = {part for cut in self.cuts for part in cut}.union(self.unreduced)
        return [part for part in self.parts if part not in used]

    def below(self, limit: int) -> int:
        return int(self.random.integers(limit))

    def collective(self, op: str, *, times: int = 1) -> None:
        """Adds `op` on the value, which multiplies it; what it makes of the sharding has been noted already."""
        name, factor = f"%v{len(self.lines)}", f"%f{len(self.lines)}"
        whole = f"{factor} = stablehlo.constant dense<{times}.0> : {self.type}\n"
        whole += f"{name} = stablehlo.multiply {self.value}, {factor} : {self.type}"
        self.lines.append((f"{name} = {op} {self.value} out_sharding={self.sharding} : {self.type}", whole))
        self.value = name

    def plain(self, text: str) -> None:
        """Adds an op of which both programs have the same text; ATTRIBUTES stands for the result's sharding."""
        name = f"%v{len(self.lines)}"
        told = f"{{sdy.sharding = #sdy.sharding_per_value<[{self.sharding}]>}}"
        self.lines.append(
            (f"{name} = {text.replace('ATTRIBUTES', told)}", f"{name} = {text.replace('ATTRIBUTES', '')}")
        )
        self.value = name

    def tails(self) -> Cuts:
        """Takes parts off the minor ends of the dimensions."""
        taken: Cuts = []
        for dimension, cut in enumerate(self.cuts):
            kept = self.below(len(cut) + 1)
            taken.append(cut[kept:])
            self.cuts[dimension] = cut[:kept]
        return taken

    def append(self, parts: list[PrimePart]) -> Cuts:
        """Puts parts to the minor ends of dimensions."""
        added: Cuts = [[] for _ in self.shape]
        for part in parts:
            added[self.below(self.rank)].append(part)
        self.cuts = [old + new for old, new in zip(self.cuts, added, strict=True)]
        return added

    def fold(self) -> tuple[str, list[PrimePart], int]:
        """What a reduction is of, the axes that it is over, and by what it multiplies."""
        copies = some(self.random, self.free, 0.5)
        pending = some(self.random, self.unreduced, 0.7)
        is_sum = bool(self.unreduced) or self.below(3) > 0
        self.unreduced = [part for part in self.unreduced if part not in pending]
        kind = "" if is_sum else ("max ", "min ")[self.below(2)]
        return kind, shuffled(self.random, copies + pending), count(copies) if is_sum else 1


def _all_gather(chain: _Chain) -> None:
    taken = chain.tails()
    if any(taken):
        chain.collective(f"sdy.all_gather {lists(taken)}")


def _all_slice(chain: _Chain) -> None:
    parts = shuffled(chain.random, some(chain.random, chain.free, 0.6))
    if parts:
        chain.collective(f"sdy.all_slice {lists(chain.append(parts))}")


def _all_to_all(chain: _Chain) -> None:
    order = [int(dimension) for dimension in chain.random.permutation(chain.rank)]
    params = []
    for source, target in zip(order[::2], order[1::2], strict=False):
        if chain.cuts[source]:
            kept = chain.below(len(chain.cuts[source]))
            moved = chain.cuts[source][kept:]
            chain.cuts[source] = chain.cuts[source][:kept]
            chain.cuts[target] = chain.cuts[target] + moved
            params.append((source, f"{axes(moved)}: {source}->{target}"))
    if params:
        chain.collective(f"sdy.all_to_all [{', '.join(text for _, text in sorted(params))}]")


def _collective_permute(chain: _Chain) -> None:
    pool = shuffled(chain.random, [part for part in chain.parts if part not in chain.unreduced])
    cuts: Cuts = []
    for cut in chain.cuts:
        cuts.append([])
        for old in cut:
            new = next(part for part in pool if part.size == old.size)
            pool.remove(new)
            cuts[-1].append(new)
    if cuts != chain.cuts:
        chain.cuts = cuts
        chain.collective("sdy.collective_permute")


def _all_reduce(chain: _Chain) -> None:
    kind, parts, times = chain.fold()
    if parts:
        chain.collective(f"sdy.all_reduce {kind}{axes(sorted(parts))}", times=times)


def _reduce_scatter(chain: _Chain) -> None:
    kind, parts, times = chain.fold()
    if parts:
        chain.collective(f"sdy.reduce_scatter {kind}{lists(chain.append(parts))}", times=times)


def _sharded_to_unreduced(chain: _Chain) -> None:
    taken = chain.tails()
    if any(taken):
        chain.unreduced += [part for cut in taken for part in cut]
        chain.collective(f"sdy.sharded_to_unreduced {lists(taken)}")


def _replicated_to_unreduced(chain: _Chain) -> None:
    parts = some(chain.random, chain.free, 0.6)
    if parts:
        chain.unreduced += parts
        chain.collective(f"sdy.replicated_to_unreduced {axes(parts)}")


def _reshard(chain: _Chain) -> None:
    chain.cuts, chain.unreduced = dealt(chain.random, chain.parts, chain.rank), []
    name = f"%v{len(chain.lines)}"
    op = ("sdy.reshard", "sdy.sharding_constraint")[chain.below(2)]
    whole = f"{name} = stablehlo.optimization_barrier {chain.value} : {chain.type}"
    chain.lines.append((f"{name} = {op} {chain.value} {chain.sharding} : {chain.type}", whole))
    chain.value = name


def _negate(chain: _Chain) -> None:
    if not chain.unreduced:
        chain.plain(f"stablehlo.negate {chain.value} ATTRIBUTES : {chain.type}")


_STEPS: tuple[Callable[[_Chain], None], ...] = (
    *(_all_gather, _all_slice, _all_to_all, _collective_permute, _all_reduce, _all_reduce, _reduce_scatter),
    *(_sharded_to_unreduced, _replicated_to_unreduced, _reshard, _negate),
)


def draw_collectives(seed: int) -> Drawn:
    """The program of `seed`: even dimensions and uneven ones, devices in their order and in others."""
    random = np.random.default_rng(seed)
    mesh = MESHES[int(random.integers(len(MESHES)))]
    parts = parts_of(mesh)
    devices = count(parts)
    sizes = (3, 5, 6, 7) if random.random() < 0.3 else (devices, 2 * devices)
    shape = tuple(int(random.choice(sizes)) for _ in range(int(random.integers(1, 4))))
    chain = _Chain(random, mesh, parts, shape, dealt(random, parts, len(shape)))
    first = chain.sharding
    chain.value = "%a"
    chain.plain(f"stablehlo.abs %a ATTRIBUTES : {chain.type}")
    for _ in range(int(random.integers(1, 7))):
        _STEPS[chain.below(len(_STEPS))](chain)
    if chain.unreduced:
        pending, chain.unreduced = sorted(chain.unreduced), []
        chain.collective(f"sdy.all_reduce {axes(pending)}")
    told = f" {{sdy.sharding = #sdy.sharding{chain.sharding}}}" if random.random() < 0.5 else ""
    array = random.integers(-4, 5, shape).astype(np.float32)

    def text(side: int, argument: str, result: str) -> str:
        body = "\n".join(line[side] for line in chain.lines)
        head = f"func.func @main(%a: {chain.type}{argument}) -> ({chain.type}{result}) {{"
        return f"{head}\n{body}\nreturn {chain.value} : {chain.type}\n}}"

    head = mesh_line(mesh, orders(random, devices, 0.25))
    sharded = f"{head}\n{text(0, f' {{sdy.sharding = #sdy.sharding{first}}}', told)}"
    return Drawn(sharded, text(1, "", ""), [array], devices)
