"""The addresses that a native function is given, and those that it makes of them once, before all else.

A function of a program may have a thousand arguments, as many buffers in its arena, and call a thousand parts, each
with a frame of addresses. Written out one by one, that is most of the function, and LLVM's time grows with it: frames
are filled by one loop over tables instead, and nothing is loaded that no line names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from spmd.compiler.schedule.arena import Placement

_NAME = re.compile(r"%(?:argument|arena)\d+\b")


@dataclass
class Addresses:
    """The names of the addresses of one function, and the entries of its frames."""

    _places: dict[str, int] = field(default_factory=dict)
    _framed: list[str] = field(default_factory=list)

    def argument(self, place: int) -> str:
        """Return the name of the address that the caller gives as number `place`."""
        name = f"%argument{place}"
        self._places[name] = place
        return name

    def frame(self, names: Sequence[str]) -> tuple[str, list[int]]:
        """What computes the address of a frame for addresses, and the places of those that are to be stored there.

        The others, arguments and buffers of the arena, lie in it from the function's beginning.
        """
        begin = len(self._framed)
        self._framed += names
        open_places = [place for place, name in enumerate(names) if not _NAME.fullmatch(name)]
        return f"getelementptr ptr, ptr %frames, i64 {begin}", open_places

    def tables(self, function: str, placement: Placement, arena: str) -> list[str]:
        """Return the constants that frames are filled from; `arena` is the argument that is the arena's address."""
        if not self._framed:
            return []
        sources = [self._source(name, placement, arena) for name in self._framed]
        places = ", ".join(f"i32 {place}" for place, _ in sources)
        offsets = ", ".join(f"i64 {offset}" for _, offset in sources)
        return [
            f"@{function}.places = private unnamed_addr constant [{len(sources)} x i32] [{places}]",
            f"@{function}.offsets = private unnamed_addr constant [{len(sources)} x i64] [{offsets}]",
        ]

    def prologue(self, function: str, lines: Sequence[str], placement: Placement, arena: str) -> list[str]:
        """What comes before `lines`, as far as the block that they begin: the addresses that they name, and frames."""
        named = set(_NAME.findall("\n".join(lines)))
        text: list[str] = []
        for name in sorted(named):
            place, offset = self._source(name, placement, arena)
            text += [
                f"  {name}.at = getelementptr ptr, ptr %arguments, i64 {place}",
                f"  {name}{'.base' if offset else ''} = load ptr, ptr {name}.at, !invariant.load !0",
            ]
            if offset:
                text.append(f"  {name} = getelementptr i8, ptr {name}.base, i64 {offset}")
        return [*text, *self._filling(function)]

    def _source(self, name: str, placement: Placement, arena: str) -> tuple[int, int]:
        """Return the argument, by its number, and the bytes behind it, where the address `name` is; any for other
        names.
        """
        if not _NAME.fullmatch(name):
            return 0, 0
        if name in self._places:
            return self._places[name], 0
        number = int(name.removeprefix("%arena"))
        block = placement.blocks[number]
        return self._places[arena] if block is None else block, placement.offsets[number]

    def _filling(self, function: str) -> list[str]:
        """Return the way to the first line: the loop that fills all frames, if there are any."""
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
