"""Outlined functions that define their own body: one copy for all programs of a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import Callee
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES


class IrParameter(NamedTuple):
    """A parameter of an LLVM type; `promise` is an attribute such as `noalias`."""

    type: str
    name: str
    promise: str = ""


class OutlinedFunction(Callee):
    """An outlined function: reads and writes through pointers, or is pure."""

    #: Function attributes.
    promise: ClassVar[str] = "nounwind"

    @property
    def parameters(self) -> Sequence[IrParameter]:
        """The parameters in order."""
        raise NotImplementedError

    @property
    def returns(self) -> str:
        """The LLVM return type."""
        return "void"

    def body(self) -> str:
        """Return the text of the body, without braces."""
        raise NotImplementedError

    @property
    def declaration(self) -> str:
        types = ", ".join(each.type for each in self.parameters)
        return f"declare {self.returns} @{self.name}({types}) {self.promise}"

    def definition(self, linkage: str = "") -> str:
        """Return the definition as LLVM IR; `linkage` is a keyword such as `internal`."""
        listed = ", ".join(" ".join(filter(None, (each.type, each.promise, each.name))) for each in self.parameters)
        head = f"define {linkage} {self.returns} @{self.name}({listed}) {self.promise} {CODE_ATTRIBUTES} {{"
        return "\n".join([head, self.body(), "}\n"])

    def write_call(self, text: FunctionText, arguments: Sequence[str], *, is_long: bool = True) -> None:
        """Emit a call without a result; `is_long`: it dominates the cost of the code around it."""
        text.callees[self.name] = self
        typed = ", ".join(f"{each.type} {name}" for each, name in zip(self.parameters, arguments, strict=True))
        (text.call if is_long else text.line)(f"call void @{self.name}({typed})")


def body_of(text: FunctionText, sizes: Sequence[str] = ()) -> str:
    """Return the body of a void function that loads i64s named `sizes` from memory at %sizes."""
    text.line("ret void")
    loads: list[str] = []
    for place, name in enumerate(sizes):
        loads += [f"  {name}.at = getelementptr i64, ptr %sizes, i64 {place}", f"  {name} = load i64, ptr {name}.at"]
    return text.body([*loads, "  br label %entry"])
