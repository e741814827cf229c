"""Functions that the threads of a process run side by side, each call another task."""

from __future__ import annotations

from dataclasses import dataclass, field

from spmd.backends.llvm.emit.text import FunctionText


@dataclass(eq=False)
class PartFunction:
    """A function `void (ptr frame, i64 part)` as it is written. What it needs from outside lies in the frame."""

    text: FunctionText = field(default_factory=FunctionText)
    captured: dict[str, str] = field(default_factory=dict)

    def pointer(self, outside: str) -> str:
        """Return the name, in here, of an address that has the name `outside` where the parts are called."""
        if outside.startswith("@"):
            return outside
        return self.captured.setdefault(outside, f"%captured{len(self.captured)}")

    def share(self, total: int, parts: int) -> tuple[str, str]:
        """Return where this part's even share of `total` iterations begins, and where it ends."""
        text = self.text
        before = text.value(f"mul i64 %part, {total}")
        ends = before, text.value(f"add i64 {before}, {total}")
        first, stop = (text.value(f"udiv i64 {end}, {parts}") for end in ends)
        return first, stop

    def body(self) -> str:
        """Return the function's attributes, and its text in braces."""
        loads = []
        for place, name in enumerate(self.captured.values()):
            loads += [
                f"  {name}.at = getelementptr ptr, ptr %frame, i64 {place}",
                f"  {name} = load ptr, ptr {name}.at, !invariant.load !0",
            ]
        body = self.text.body([*loads, "  br label %entry"])
        return f"#{int(self.text.only_calls)} {{\n{body}\n}}"


def define(name: str, body: str) -> str:
    """Return the text of the function `name` with the body of a PartFunction."""
    return f"define internal void @{name}(ptr noalias readonly %frame, i64 %part) {body}"
