"""Task functions: called by the threads of a process, each call with another task number."""

from __future__ import annotations

from dataclasses import dataclass, field

from spmd.backends.llvm.emit.text import FunctionText


@dataclass(eq=False)
class TaskFunction:
    """A function `void (ptr frame, i64 part)` being emitted. Captured pointers are passed in the frame."""

    text: FunctionText = field(default_factory=FunctionText)
    captured: dict[str, str] = field(default_factory=dict)

    def pointer(self, outside: str) -> str:
        """Return the SSA name inside the function of the pointer `outside` of its caller."""
        if outside.startswith("@"):
            return outside
        return self.captured.setdefault(outside, f"%captured{len(self.captured)}")

    def share(self, total: int, parts: int) -> tuple[str, str]:
        """Return the first iteration of this task's even share of `total`, and one past its last."""
        text = self.text
        before = text.value(f"mul i64 %part, {total}")
        ends = before, text.value(f"add i64 {before}, {total}")
        first, stop = (text.value(f"udiv i64 {end}, {parts}") for end in ends)
        return first, stop

    def body(self) -> str:
        """Return the function's attributes and its text in braces."""
        loads = []
        for place, name in enumerate(self.captured.values()):
            loads += [
                f"  {name}.at = getelementptr ptr, ptr %frame, i64 {place}",
                f"  {name} = load ptr, ptr {name}.at, !invariant.load !0",
            ]
        body = self.text.body([*loads, "  br label %entry"])
        return f"#{int(self.text.only_calls)} {{\n{body}\n}}"


def define(name: str, body: str) -> str:
    """Return the definition of function `name` with the body of a TaskFunction."""
    return f"define internal void @{name}(ptr noalias readonly %frame, i64 %part) {body}"
