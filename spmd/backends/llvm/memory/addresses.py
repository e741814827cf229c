"""Addresses in a native function: its pointer arguments, arena buffers, and frames of addresses.

A function may have a thousand arguments and arena buffers, and call a thousand functions with a frame of addresses
each. Emitted one by one that would be most of the code, and LLVM's time grows with it: frames are filled by one loop
over constant tables instead, and only addresses in use are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from spmd.compiler.schedule.arena import Placement

_NAME = re.compile(r"%(?:argument|arena)\d+\b")


@dataclass
class Addresses:
    """SSA names of the addresses of one function, and the entries of its frames."""

    _places: dict[str, int] = field(default_factory=dict)
    _framed: list[str] = field(default_factory=list)

    def argument(self, index: int) -> str:
        """Return the SSA name of pointer argument `index`."""
        name = f"%argument{index}"
        self._places[name] = index
        return name

    def frame(self, names: Sequence[str]) -> tuple[str, list[int]]:
        """Return the expression of a frame of addresses, and the indices of those that must be stored there at run
        time.

        The others, arguments and arena buffers, are filled in by the prologue.
        """
        begin = len(self._framed)
        self._framed += names
        open_places = [index for index, name in enumerate(names) if not _NAME.fullmatch(name)]
        return f"getelementptr ptr, ptr %frames, i64 {begin}", open_places

    def tables(self, function: str, placement: Placement, arena: str) -> list[str]:
        """Return the constant tables that frames are filled from; `arena` is the argument with the arena's address."""
        if not self._framed:
            return []
        sources = [self._source(name, placement, arena) for name in self._framed]
        places = ", ".join(f"i32 {index}" for index, _ in sources)
        offsets = ", ".join(f"i64 {offset}" for _, offset in sources)
        return [
            f"@{function}.places = private unnamed_addr constant [{len(sources)} x i32] [{places}]",
            f"@{function}.offsets = private unnamed_addr constant [{len(sources)} x i64] [{offsets}]",
        ]

    def prologue(self, function: str, lines: Sequence[str], placement: Placement, arena: str) -> list[str]:
        """Return the prologue of `lines`: the addresses that they use, and the loop that fills frames."""
        named = set(_NAME.findall("\n".join(lines)))
        text: list[str] = []
        for name in sorted(named):
            index, offset = self._source(name, placement, arena)
            text += [
                f"  {name}.at = getelementptr ptr, ptr %arguments, i64 {index}",
                f"  {name}{'.base' if offset else ''} = load ptr, ptr {name}.at, !invariant.load !0",
            ]
            if offset:
                text.append(f"  {name} = getelementptr i8, ptr {name}.base, i64 {offset}")
        return [*text, *self._filling(function)]

    def _source(self, name: str, placement: Placement, arena: str) -> tuple[int, int]:
        """Return the argument number and the byte offset that address `name` is computed from; (0, 0) for
        other names.
        """
        if not _NAME.fullmatch(name):
            return 0, 0
        if name in self._places:
            return self._places[name], 0
        number = int(name.removeprefix("%arena"))
        block = placement.blocks[number]
        return self._places[arena] if block is None else block, placement.offsets[number]

    def _filling(self, function: str) -> list[str]:
        """Return the end of the prologue: the loop that fills all frames, if there are any, and a branch to `entry`."""
        if not self._framed:
            return ["  %frames = getelementptr i8, ptr %arguments, i64 0", "  br label %entry"]
        return [
            f"  %frames = alloca [{len(self._framed)} x ptr], align 8",
            "  br label %frame",
            "frame:",
            "  %frame.i = phi i64 [ 0, %begin ], [ %frame.next, %frame ]",
            f"  %frame.place.at = getelementptr i32, ptr @{function}.places, i64 %frame.i",
            "  %frame.place = load i32, ptr %frame.place.at",
            "  %frame.base.at = getelementptr ptr, ptr %arguments, i32 %frame.place",
            "  %frame.base = load ptr, ptr %frame.base.at",
            f"  %frame.offset.at = getelementptr i64, ptr @{function}.offsets, i64 %frame.i",
            "  %frame.offset = load i64, ptr %frame.offset.at",
            "  %frame.address = getelementptr i8, ptr %frame.base, i64 %frame.offset",
            "  %frame.at = getelementptr ptr, ptr %frames, i64 %frame.i",
            "  store ptr %frame.address, ptr %frame.at",
            "  %frame.next = add nuw nsw i64 %frame.i, 1",
            f"  %frame.more = icmp ult i64 %frame.next, {len(self._framed)}",
            "  br i1 %frame.more, label %frame, label %entry",
        ]
