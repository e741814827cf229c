"""LLVM's spelling of types and constants, and a builder of instructions."""

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
    """Return the LLVM type of `width` values of a machine type, or of a named LLVM type: `float`, `<16 x ptr>`."""
    name = type if isinstance(type, str) else _NAMES[type]
    return name if width == 1 else f"<{width} x {name}>"


def index_type(span: int) -> str:
    """Return the narrowest index type of gathers for offsets up to `span`."""
    return "i32" if abs(span) < 2**31 else "i64"


def suffix(type: MachineType | str, width: int) -> str:
    """Return the type suffix of intrinsics: `f32`, `v16f32`, `v16p0`."""
    name = type if isinstance(type, str) else type.value
    return name if width == 1 else f"v{width}{name}"


def constant_text(node: Expression, width: int = 1) -> str:
    """Return a constant, splatted to `width` lanes, as LLVM IR."""
    assert node.primitive is Primitive.CONSTANT and isinstance(node.attribute, int)
    if node.type is I1:
        text = "true" if node.attribute else "false"
    elif node.type.is_float:
        text = f"0x{_double_bits(node.attribute, node.type):016X}"
    else:
        text = str(node.attribute)
    return text if width == 1 else f"splat ({llvm_type(node.type)} {text})"


def _double_bits(bits: int, type: MachineType) -> int:
    """Return the bits that LLVM IR spells a float by: those of the f64 of its value, NaN payloads left-aligned."""
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
    """An outlined function, compiled on first use and shared by all programs."""

    @property
    def name(self) -> str:
        """The function's unique symbol."""
        raise NotImplementedError

    @property
    def declaration(self) -> str:
        """The declaration for modules that call it."""
        raise NotImplementedError


@dataclass(frozen=True)
class FloatFunction(Callee):
    """A scalar function on `width` lanes."""

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
class InstructionBuilder:
    """Lines of a function's body, with fresh names. `callees` are the functions called.

    `block` is the label of the current basic block, for phi nodes.
    """

    lines: list[str] = field(default_factory=list)
    callees: dict[str, Callee] = field(default_factory=dict)
    block: str = "entry"
    _count: int = 0

    def fresh(self, stem: str = "v") -> str:
        """Return a unique name: `%v7`."""
        self._count += 1
        return f"%{stem}{self._count}"

    def emit(self, instruction: str) -> str:
        """Emit an instruction; return the SSA name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Emit an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def label(self, name: str) -> None:
        """Begin the basic block `name` (without `%`)."""
        self.lines.append(f"{name}:")
        self.block = name

    @property
    def declarations(self) -> list[str]:
        """Declarations of the functions called."""
        return [callee.declaration for callee in self.callees.values()]
