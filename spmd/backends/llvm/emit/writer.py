"""LLVM's spelling of types and constants, and the text of a function's body as it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

from spmd.analysis.scalar.expression import F32, I1, Expression, MachineType, Primitive

_NAMES = {
    MachineType.I1: "i1",
    MachineType.I8: "i8",
    MachineType.I16: "i16",
    MachineType.I32: "i32",
    MachineType.I64: "i64",
    MachineType.F32: "float",
    MachineType.F64: "double",
}


def llvm_type(type: MachineType | str, width: int = 1) -> str:
    """LLVM's type of `width` values of a machine type, or of one that LLVM alone names: `float`, `<16 x ptr>`."""
    name = type if isinstance(type, str) else _NAMES[type]
    return name if width == 1 else f"<{width} x {name}>"


def index_type(span: int) -> str:
    """Return the narrowest type that processors gather by, for places up to `span` away."""
    return "i32" if abs(span) < 2**31 else "i64"


def suffix(type: MachineType | str, width: int) -> str:
    """Return how the names of intrinsics spell the type: `f32`, `v16f32`, `v16p0`."""
    name = type if isinstance(type, str) else type.value
    return name if width == 1 else f"v{width}{name}"


def constant_text(node: Expression, width: int = 1) -> str:
    """Return a constant on every lane, as LLVM's text has it."""
    assert node.primitive is Primitive.CONSTANT and isinstance(node.attribute, int)
    if node.type is I1:
        text = "true" if node.attribute else "false"
    elif node.type.is_float:
        text = f"0x{_double_bits(node.attribute, node.type):016X}"
    else:
        text = str(node.attribute)
    return text if width == 1 else f"splat ({llvm_type(node.type)} {text})"


def _double_bits(bits: int, type: MachineType) -> int:
    """LLVM writes every float with the bits of the f64 of its value, NaN's bits at the top."""
    if type is not F32:
        return bits
    sign, exponent, mantissa = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        wide_exponent = 0x7FF
    elif exponent:
        wide_exponent = exponent - 127 + 1023
    elif mantissa:
        shift = 24 - mantissa.bit_length()
        mantissa, wide_exponent = mantissa << shift & 0x7FFFFF, 1 - shift - 127 + 1023
    else:
        wide_exponent = 0
    return sign << 63 | wide_exponent << 52 | mantissa << 29


class Callee:
    """A function that stands out of line: made when a program first needs it, for all programs."""

    @property
    def name(self) -> str:
        """The function's symbol, which tells it from every other."""
        raise NotImplementedError

    @property
    def declaration(self) -> str:
        """The line that a module which calls the function needs."""
        raise NotImplementedError


@dataclass(frozen=True)
class FloatFunction(Callee):
    """A function of scalars on `width` lanes."""

    function: Primitive
    type: MachineType
    width: int
    arity: int

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.exp.f32.x16`."""
        return f"spmd.{self.function.value}.{self.type.value}.x{self.width}"

    @property
    def declaration(self) -> str:
        name = llvm_type(self.type, self.width)
        return f"declare {name} @{self.name}({', '.join([name] * self.arity)}) memory(none) nounwind willreturn"


@dataclass
class Writer:
    """Lines of a function's body; every name it hands out is new. `callees` are the functions that the lines call.

    `block` is the label of the block that the next line falls in, for who writes phi nodes.
    """

    lines: list[str] = field(default_factory=list)
    callees: dict[str, Callee] = field(default_factory=dict)
    block: str = "entry"
    _count: int = 0

    def fresh(self, stem: str = "v") -> str:
        """Return a name nobody has: `%v7`."""
        self._count += 1
        return f"%{stem}{self._count}"

    def emit(self, instruction: str) -> str:
        """Emit an instruction that gives a value; its name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Emit an instruction that gives nothing."""
        self.lines.append(f"  {instruction}")

    def label(self, name: str) -> None:
        """Begin the block `name` (without `%`)."""
        self.lines.append(f"{name}:")
        self.block = name

    @property
    def declarations(self) -> list[str]:
        """Of the functions called."""
        return [callee.declaration for callee in self.callees.values()]
