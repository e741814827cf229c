"""Emission of LLVM IR: names, blocks, and loops whose headers are emitted after their bodies.

A function is emitted scope by scope; a scope is the body of an open loop. A value is emitted into the scope of the
innermost variable that it depends on, before the inner loops, so that loop-invariant code is hoisted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spmd.backends.llvm.emit.writer import Callee


@dataclass(slots=True)
class LoopScope:
    """The body of an open loop (the function's own at depth 0): its lines, and the values emitted in it by key.

    `calls`: it calls a long-running function.
    """

    depth: int
    label: str
    head: str = ""
    lines: list[str] = field(default_factory=list)
    known: dict[Hashable, Any] = field(default_factory=dict)
    calls: bool = False


class FunctionText:
    """The body of one function."""

    def __init__(self) -> None:
        self.scopes: list[LoopScope] = [LoopScope(0, "entry")]
        self.entry: list[str] = []  # allocas, before all else
        self.declarations: dict[str, None] = {}
        self.callees: dict[str, Callee] = {}
        self._count = 0
        self._calling_loops = 0

    def fresh(self, hint: str = "t") -> str:
        """Return a unique name."""
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
        """Emit an instruction without a result into the scope at `depth` (default: innermost)."""
        self.scopes[-1 if depth is None else depth].lines.append(f"  {text}")

    def call(self, text: str) -> None:
        """Emit a call of a long-running function, beside which the surrounding code is negligible."""
        self.line(text)
        self.innermost.calls = True

    def value(self, text: str, depth: int | None = None, hint: str = "t") -> str:
        """Emit an instruction; return the SSA name of its result."""
        name = f"%{self.fresh(hint)}"
        self.line(f"{name} = {text}", depth)
        return name

    def allocate(self, type: str, align: int = 64) -> str:
        """Return a stack slot for one `type`, allocated in the entry block."""
        name = f"%{self.fresh('slot')}"
        self.entry.append(f"  {name} = alloca {type}, align {align}")
        return name

    def numbers(self, numbers: Sequence[int]) -> str:
        """Return the name of a global array of i64."""
        name = f"@spmd.sizes.{'.'.join(map(str, numbers))}"
        listed = ", ".join(f"i64 {number}" for number in numbers)
        self.declarations[f"{name} = private unnamed_addr constant [{len(numbers)} x i64] [{listed}]"] = None
        return name

    def start_block(self, label: str) -> None:
        """Begin a basic block in the innermost scope; the previous line must be a terminator."""
        self.innermost.lines.append(f"{label}:")
        self.innermost.label = label

    def find(self, key: Hashable, depth: int | None = None) -> Any:
        """Return the value kept for `key` in the scope at `depth` (default: innermost) or an enclosing one; None if
        there is none.

        Such values dominate what is emitted next into that scope. Values of inner scopes do not, and are not found.
        """
        for place in range(self.depth if depth is None else depth, -1, -1):
            register = self.scopes[place].known.get(key)
            if register is not None:
                return register
        return None

    def keep(self, key: Hashable, value: object, depth: int) -> None:
        """Keep the value emitted for `key` into the scope at `depth`, for reuse there and in inner scopes."""
        self.scopes[depth].known[key] = value

    # --- loops ---

    @contextmanager
    def scope(self) -> Iterator[int]:
        """Open a scope that runs once, within the `with`; yield its depth."""
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
        """Open a scope that runs if the i1 `condition` holds, within the `with`; yield its depth."""
        within, after = self.fresh("where"), self.fresh("after")
        with self.scope() as depth:
            self.line(f"br i1 {condition}, label %{within}, label %{after}")
            self.start_block(within)
            yield depth
            self.line(f"br label %{after}")
            self.start_block(after)

    def either(self, condition: str, write: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Emit a branch on the i1 `condition`: `write` emits one side, `otherwise` the other."""
        holds, fails, after = self.fresh("where"), self.fresh("else"), self.fresh("after")
        with self.scope():
            self.line(f"br i1 {condition}, label %{holds}, label %{fails}")
            for label, body in ((holds, write), (fails, otherwise)):
                self.start_block(label)
                with self.scope():
                    body()
                self.innermost.known.clear()  # it does not dominate the other side
                self.line(f"br label %{after}")
            self.start_block(after)

    def open_loop(self) -> tuple[str, int]:
        """Open a loop; return the SSA name of its i64 variable and the depth of its body."""
        head = self.fresh("loop")
        scope = LoopScope(len(self.scopes), head, head)
        self.scopes.append(scope)
        return f"%{head}.i", scope.depth

    def close_loop(self, count: int | str, step: int | str = 1, start: str = "0") -> None:
        """Close the innermost loop: its variable runs from `start` to `count`, which is greater, by `step`."""
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
        """Yield the start and size of chunks of `step` out of `count`; code emitted meanwhile runs for each.

        The remainder is a chunk of its own, whose code is emitted again with a constant size.
        """
        rest = count % step
        if count // step == 1:
            with self.scope():
                yield "0", step
        elif count > step:
            start, _ = self.open_loop()
            yield start, step
            self.close_loop(count - rest, step)
        if rest:
            with self.scope():
                yield str(count - rest), rest

    def blocks(self, count: int | str, size: int) -> Iterator[tuple[str, int | str]]:
        """Yield the start and size of blocks of `size` out of `count`; code emitted meanwhile runs for each.

        It is emitted once, with a dynamic size; `chunks` emits it again for the remainder.
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
        """All lines except allocas."""
        (scope,) = self.scopes
        return scope.lines

    @property
    def only_calls(self) -> bool:
        """Whether the body only sets up and makes calls: no vectors, and no branches except of loops around long calls.

        Such a function is not worth optimizing.
        """
        branches = sum("br " in line for line in self.lines)
        return branches == 2 * self._calling_loops and not any("<" in line for line in self.lines)

    def body(self, prologue: Sequence[str]) -> str:
        """Return the function's body; `prologue` must end with a branch to `entry`."""
        return "\n".join(["begin:", *self.entry, *prologue, "entry:", *self.lines])
