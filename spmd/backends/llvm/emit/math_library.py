"""Outlined functions: one compiled function per math function, type and vector width, and per micro-kernel.

Loops call them, so that LLVM optimizes a polynomial once, not at each use. They are compiled on first use, and kept for
the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spmd.analysis.scalar.expression import Expression, Primitive, constant_bits
from spmd.analysis.scalar.functions import definition, expand
from spmd.backends.llvm.emit.outlined import OutlinedFunction
from spmd.backends.llvm.emit.scalars import Renderer
from spmd.backends.llvm.emit.writer import Callee, FloatFunction, InstructionBuilder, constant_text, llvm_type, suffix
from spmd.backends.llvm.jit.jit import Library, compile_together, load_object
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES
from spmd.support.processor import Processor

_LOCK = threading.Lock()
_LIBRARIES: dict[tuple[Processor, Callee], Library] = {}


@dataclass(frozen=True)
class Linked:
    """What a module that calls outlined functions is linked with: their addresses, and the libraries to keep alive."""

    symbols: dict[str, int]
    libraries: tuple[Library, ...]


def link(callees: Iterable[Callee], processor: Processor) -> Linked:
    """Return `callees` compiled for `processor` and loaded."""
    wanted = list(callees)
    with _LOCK:
        _load([callee for callee in wanted if (processor, callee) not in _LIBRARIES], processor)
        libraries = {callee: _LIBRARIES[processor, callee] for callee in wanted}
    symbols = {callee.name: library.address(callee.name) for callee, library in libraries.items()}
    return Linked(symbols, tuple(dict.fromkeys(libraries.values())))


def _load(missing: Sequence[Callee], processor: Processor) -> None:
    """Load functions that are not loaded yet, compiled in one module."""
    codes = compile_together([function_text(callee) for callee in missing], processor)
    loaded = {code: load_object(code, {}) for code in dict.fromkeys(codes)}
    _LIBRARIES.update({(processor, callee): loaded[code] for callee, code in zip(missing, codes, strict=True)})


def function_text(callee: Callee, *, linkage: str = "") -> str:
    """Return the definition of an outlined function as LLVM IR; `linkage` is a keyword such as `internal`."""
    if isinstance(callee, OutlinedFunction):
        return callee.definition(linkage)
    assert isinstance(callee, FloatFunction)
    return _float_text(callee, linkage)


def _float_text(callee: FloatFunction, linkage: str) -> str:
    writer = InstructionBuilder()
    writer.label("entry")
    renderer = _BodyRenderer(writer, callee)
    (result,) = renderer.render(expand([definition(callee.function, callee.type)]))
    name = llvm_type(callee.type, callee.width)
    writer.do(f"ret {name} {result}")
    parameters = ", ".join(f"{name} %p{index}" for index in range(callee.arity))
    body = "\n".join([f"define {linkage} {name} @{callee.name}({parameters}) {_ATTRIBUTES} {{", *writer.lines, "}\n"])
    return "\n".join([*renderer.tables, body])


#: Tables are constant, so functions do not access memory.
_ATTRIBUTES = f"memory(none) nounwind willreturn {CODE_ATTRIBUTES}"


class _BodyRenderer(Renderer):
    """A renderer that may emit blocks and tables: rare operands are computed in a branch that is skipped if no lane
    needs them.
    """

    def __init__(self, writer: InstructionBuilder, callee: FloatFunction) -> None:
        super().__init__(writer, callee.width, [f"%p{index}" for index in range(callee.arity)])
        self.tables: list[str] = []
        self._stem = callee.name

    def _needed(self, node: Expression) -> Sequence[Expression]:
        if node.primitive is Primitive.RARELY:
            return node.operands[0], node.operands[2]
        return node.operands

    def _write(self, node: Expression) -> str:
        if node.primitive is Primitive.TABLE:
            return self._look_up(node)
        if node.primitive is not Primitive.RARELY:
            return super()._write(node)
        chosen, rare, common = node.operands
        writer, lanes = self.writer, llvm_type("i1", self.width)
        condition, usual = self._names[chosen], self._names[common]
        some = condition
        if self.width > 1:
            some = writer.emit(f"call i1 @llvm.vector.reduce.or.v{self.width}i1({lanes} {condition})")
        before, rare_block, joined = writer.block, writer.fresh("rare")[1:], writer.fresh("join")[1:]
        writer.do(f"br i1 {some}, label %{rare_block}, label %{joined}")
        writer.label(rare_block)
        outside = dict(self._names)  # values computed in the branch do not dominate what follows
        (value,) = self.render([rare])
        type = llvm_type(node.type, self.width)
        picked = writer.emit(f"select {lanes} {condition}, {type} {value}, {type} {usual}")
        after = writer.block
        self._names = outside
        writer.do(f"br label %{joined}")
        writer.label(joined)
        return writer.emit(f"phi {type} [{usual}, %{before}], [{picked}, %{after}]")

    def _look_up(self, node: Expression) -> str:
        assert isinstance(node.attribute, tuple)
        scalar, type = llvm_type(node.type), llvm_type(node.type, self.width)
        entries = [constant_text(constant_bits(bits, node.type)) for bits in node.attribute if isinstance(bits, int)]
        name = f"@{self._stem}.table{len(self.tables)}"
        listed = ", ".join(f"{scalar} {entry}" for entry in entries)
        line = f"private unnamed_addr constant [{len(entries)} x {scalar}] [{listed}]"
        known = [each.split(" = ", 1) for each in self.tables]
        for other, text in known:
            if text == line:
                name = other
                break
        else:
            self.tables.append(f"{name} = {line}")
        index = f"{llvm_type('i32', self.width)} {self._names[node.operands[0]]}"
        place = self.writer.emit(f"getelementptr {scalar}, ptr {name}, {index}")
        if self.width == 1:
            return self.writer.emit(f"load {scalar}, ptr {place}")
        lanes = f"<{self.width} x i1> splat (i1 true), {type} zeroinitializer"
        gather = f"@llvm.masked.gather.{suffix(node.type, self.width)}.{suffix('p0', self.width)}"
        align = node.type.bits // 8
        return self.writer.emit(f"call {type} {gather}({llvm_type('ptr', self.width)} align {align} {place}, {lanes})")
