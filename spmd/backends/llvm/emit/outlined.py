"""Functions that stand out of line and say themselves what they do: one piece of code for all programs of a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import Callee
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES


class Parameter(NamedTuple):
    """A parameter of LLVM's `type`; `promise` is what LLVM may rely on, such as `noalias`."""

    type: str
    name: str
    promise: str = ""


class OutOfLine(Callee):
    """A function that does with memory what it is told, or gives a value of its operands."""

    #: What LLVM may rely on.
    promise: ClassVar[str] = "nounwind"

    @property
    def parameters(self) -> Sequence[Parameter]:
        """What it is told, in order."""
        raise NotImplementedError

    @property
    def returns(self) -> str:
        """LLVM's type of what it gives."""
        return "void"

    def body(self) -> str:
        """Its text between the braces."""
        raise NotImplementedError

    @property
    def declaration(self) -> str:
        types = ", ".join(each.type for each in self.parameters)
        return f"declare {self.returns} @{self.name}({types}) {self.promise}"

    def definition(self, linkage: str = "") -> str:
        """Return the function in LLVM's text; `linkage` is a word such as `internal`."""
        listed = ", ".join(" ".join(filter(None, (each.type, each.promise, each.name))) for each in self.parameters)
        head = f"define {linkage} {self.returns} @{self.name}({listed}) {self.promise} {CODE_ATTRIBUTES} {{"
        return "\n".join([head, self.body(), "}\n"])

    def write_call(self, text: FunctionText, arguments: Sequence[str], *, is_long: bool = True) -> None:
        """Emit a call that gives nothing, with the names of `arguments`; `is_long`: it takes long."""
        text.callees[self.name] = self
        told = ", ".join(f"{each.type} {name}" for each, name in zip(self.parameters, arguments, strict=True))
        (text.call if is_long else text.line)(f"call void @{self.name}({told})")


def body_of(text: FunctionText, sizes: Sequence[str] = ()) -> str:
    """Return the body of a function that gives nothing, and finds numbers of i64 of the names `sizes` in memory at
    %sizes.
    """
    text.line("ret void")
    loads: list[str] = []
    for place, name in enumerate(sizes):
        loads += [f"  {name}.at = getelementptr i64, ptr %sizes, i64 {place}", f"  {name} = load i64, ptr {name}.at"]
    return text.body([*loads, "  br label %entry"])
