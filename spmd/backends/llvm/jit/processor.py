"""The processor that code is made for: this one, with all its features and its full vector width."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

#: Vector registers by feature, widest first: bits of one register.
_REGISTERS = (("avx512f", 512), ("avx", 256))
_SMALLEST_REGISTER = 128
#: Linux's system call arch_prctl on x86-64, its ARCH_REQ_XCOMP_PERM, and the number of the tiles' state.
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18

#: What every function asks of LLVM. Vector registers that are put aside lie on cache lines of their own: callers align
#: the stack to 16 bytes alone, and loops took twice the time wherever it happened to lie otherwise.
CODE_ATTRIBUTES = '"prefer-vector-width"="512" "stackrealign"'


@dataclass(frozen=True)
class Processor:
    """`triple`, `cpu` and `features` are spelled as LLVM does; `vector_bits` is the width of a vector register.

    `has_tiles`: it has tile registers for products of 8-bit integers, and this process may use them.
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int
    has_tiles: bool = False

    @property
    def key(self) -> str:
        """What tells the code for one processor from another's."""
        return f"{self.triple} {self.cpu} {self.features} {self.has_tiles}"


@cache
def host() -> Processor:
    """The processor this process runs on."""
    features = llvm.get_host_cpu_features()
    vector_bits = next((bits for name, bits in _REGISTERS if features.get(name)), _SMALLEST_REGISTER)
    # LLVM keeps to half of the registers on processors that once ran slower with the whole of them
    text = features.flatten() + (",-prefer-256-bit" if vector_bits == 512 else "")
    has_tiles = vector_bits == 512 and bool(features.get("amx-int8")) and _ask_for_tiles()
    return Processor(llvm.get_process_triple(), llvm.get_host_cpu_name(), text, vector_bits, has_tiles)


def _ask_for_tiles() -> bool:
    """Whether Linux lets this process use tile registers, which it has to be asked for before their first use.

    Threads, also those that are there already, and processes forked from this one have what it is given.
    """
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0)


def target_machine(processor: Processor, *, optimizing: bool = True) -> llvm.TargetMachine:
    """A new machine that emits position-independent code for `processor`."""
    _initialize()
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(
        cpu=processor.cpu, features=processor.features, opt=2 if optimizing else 0, reloc="pic", codemodel="small"
    )


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
