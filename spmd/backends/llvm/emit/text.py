"""LLVM's text as it is written: names, blocks, loops whose headers are written when their bodies are known.

A function's text is written scope by scope, a scope being the body of an open loop. Whatever depends on outer
variables alone is written into the scope of the innermost one that it depends on, which stands before the inner
loops: nothing is computed again where it does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spmd.backends.llvm.emit.writer import Callee


@dataclass(slots=True)
class LoopScope:
    """The body of an open loop (the function's own at depth 0): its lines and what has been written in it.

    `calls`: it calls a function that takes long.
    """

    depth: int
    label: str
    head: str = ""
    lines: list[str] = field(default_factory=list)
    known: dict[Hashable, Any] = field(default_factory=dict)
    calls: bool = False


class FunctionText:
    """The text of one function's body."""

    def __init__(self) -> None:
        self.scopes: list[LoopScope] = [LoopScope(0, "entry")]
        self.entry: list[str] = []  # allocations, which stand before all else
        self.declarations: dict[str, None] = {}
        self.callees: dict[str, Callee] = {}
        self._count = 0
        self._calling_loops = 0

    def fresh(self, hint: str = "t") -> str:
        """Return a name that no other value or block has."""
        self._count += 1
        return f"{hint}{self._count}"

    @property
    def depth(self) -> int:
        """The depth of the innermost scope."""
        return len(self.scopes) - 1

    @property
    def innermost(self) -> LoopScope:
        return self.scopes[-1]

    def line(self, text: str, depth: int | None = None) -> None:
        """Emit an instruction into the scope at `depth`, the innermost one by default."""
        self.scopes[-1 if depth is None else depth].lines.append(f"  {text}")

    def call(self, text: str) -> None:
        """Emit a call of a function that takes long: what else is done around it takes no time beside it."""
        self.line(text)
        self.innermost.calls = True

    def value(self, text: str, depth: int | None = None, hint: str = "t") -> str:
        """Emit an instruction that gives a value; its name."""
        name = f"%{self.fresh(hint)}"
        self.line(f"{name} = {text}", depth)
        return name

    def allocate(self, type: str, align: int = 64) -> str:
        """Room on the stack for one `type`, for the whole function."""
        name = f"%{self.fresh('slot')}"
        self.entry.append(f"  {name} = alloca {type}, align {align}")
        return name

    def numbers(self, numbers: Sequence[int]) -> str:
        """Return the name of a constant of the module that holds i64s."""
        name = f"@spmd.sizes.{'.'.join(map(str, numbers))}"
        listed = ", ".join(f"i64 {number}" for number in numbers)
        self.declarations[f"{name} = private unnamed_addr constant [{len(numbers)} x i64] [{listed}]"] = None
        return name

    def start_block(self, label: str) -> None:
        """Begin a block in the innermost scope; the line before must have ended the last one."""
        self.innermost.lines.append(f"{label}:")
        self.innermost.label = label

    def find(self, key: Hashable, depth: int | None = None) -> Any:
        """Return what was kept for `key` in the scope at `depth` (the innermost one by default) or further out.

        That stands before all that is written next into the scope at `depth`. What was kept further in does not, though
        it may be of the same numbers: it is not found. None where nothing is.
        """
        for place in range(self.depth if depth is None else depth, -1, -1):
            register = self.scopes[place].known.get(key)
            if register is not None:
                return register
        return None

    def keep(self, key: Hashable, value: object, depth: int) -> None:
        """Keep what was written for `key` into the scope at `depth`, to be used again there and further in."""
        self.scopes[depth].known[key] = value

    # --- loops ---

    @contextmanager
    def part(self) -> Iterator[int]:
        """A scope that runs once, where it stands; its depth."""
        outer = self.innermost
        inner = LoopScope(len(self.scopes), outer.label)
        self.scopes.append(inner)
        yield inner.depth
        self.scopes.pop()
        outer.lines += inner.lines
        outer.label = inner.label
        outer.calls |= inner.calls

    @contextmanager
    def where(self, condition: str) -> Iterator[int]:
        """A scope that runs where the i1 `condition` holds; its depth."""
        within, after = self.fresh("where"), self.fresh("after")
        with self.part() as depth:
            self.line(f"br i1 {condition}, label %{within}, label %{after}")
            self.start_block(within)
            yield depth
            self.line(f"br label %{after}")
            self.start_block(after)

    def either(self, condition: str, write: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """What `write` writes is run where the i1 `condition` holds, elsewhere what `otherwise` writes."""
        holds, fails, after = self.fresh("where"), self.fresh("else"), self.fresh("after")
        with self.part():
            self.line(f"br i1 {condition}, label %{holds}, label %{fails}")
            for label, body in ((holds, write), (fails, otherwise)):
                self.start_block(label)
                with self.part():
                    body()
                self.innermost.known.clear()  # it does not stand before the other body
                self.line(f"br label %{after}")
            self.start_block(after)

    def open_loop(self) -> tuple[str, int]:
        """Open a loop; the name of its i64 variable and the depth of its body."""
        head = self.fresh("loop")
        scope = LoopScope(len(self.scopes), head, head)
        self.scopes.append(scope)
        return f"%{head}.i", scope.depth

    def close_loop(self, count: int | str, step: int | str = 1, start: str = "0") -> None:
        """Close the innermost loop, whose variable goes from `start` to `count`, which is more, by `step`."""
        inner = self.scopes.pop()
        outer = self.innermost
        head = inner.head
        outer.lines += [
            f"  br label %{head}",
            f"{head}:",
            f"  %{head}.i = phi i64 [ {start}, %{outer.label} ], [ %{head}.next, %{inner.label} ]",
            *inner.lines,
            f"  %{head}.next = add nuw nsw i64 %{head}.i, {step}",
            f"  %{head}.more = icmp ult i64 %{head}.next, {count}",
            f"  br i1 %{head}.more, label %{head}, label %{head}.end",
            f"{head}.end:",
        ]
        outer.label = f"{head}.end"
        outer.calls |= inner.calls
        self._calling_loops += inner.calls

    def chunks(self, count: int, step: int) -> Iterator[tuple[str, int]]:
        """Chunks of `step` of `count`, the last one what is left: where each begins, and its size.

        What is written meanwhile is run for each of them.
        """
        rest = count % step
        if count // step == 1:
            with self.part():
                yield "0", step
        elif count > step:
            start, _ = self.open_loop()
            yield start, step
            self.close_loop(count - rest, step)
        if rest:
            with self.part():
                yield str(count - rest), rest

    def blocks(self, count: int | str, size: int) -> Iterator[tuple[str, int | str]]:
        """Blocks of `size` of `count`, the last one what is left: where each begins, and how large it is.

        What is written meanwhile is written once, and run for each of them; `chunks` writes it again for what is left,
        whose size is a number.
        """
        if isinstance(count, int) and (count < size or count % size == 0):
            yield from self.chunks(count, size)
            return
        start, _ = self.open_loop()
        left = self.value(f"sub i64 {count}, {start}")
        yield start, self.value(f"call i64 @llvm.umin.i64(i64 {left}, i64 {size})")
        self.close_loop(count, size)

    @property
    def lines(self) -> list[str]:
        """All lines but allocations."""
        (scope,) = self.scopes
        return scope.lines

    @property
    def only_calls(self) -> bool:
        """Whether there are calls and what they are given alone: no vectors, and no branches but those of loops around
        calls that take long. Optimizing it is not worth the time.
        """
        branches = sum("br " in line for line in self.lines)
        return branches == 2 * self._calling_loops and not any("<" in line for line in self.lines)

    def body(self, prologue: Sequence[str]) -> str:
        """Return the whole text between the function's braces; `prologue` ends with a branch to `entry`."""
        return "\n".join(["begin:", *self.entry, *prologue, "entry:", *self.lines])
