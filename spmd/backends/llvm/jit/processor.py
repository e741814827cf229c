"""The processor that this process runs on, and LLVM's machines for processors."""

from __future__ import annotations

import ctypes
import threading
from functools import cache

import llvmlite.binding as llvm

from collectives.system import IS_LINUX
from spmd.support.processor import HOST, Processor, named, requested, runnable

#: The width of vector registers, and how many there are, by feature, widest first.
_REGISTERS = (("avx512f", 512, 32), ("avx", 256, 16), ("neon", 128, 32))
_SMALLEST_REGISTERS = 128, 16
#: Linux's system call arch_prctl on x86-64, its ARCH_REQ_XCOMP_PERM, and the number of the tiles' state.
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18

#: What every function asks of LLVM. Vector registers that are put aside lie on cache lines of their own: callers align
#: the stack to 16 bytes alone, and loops took twice the time wherever it happened to lie otherwise.
CODE_ATTRIBUTES = '"prefer-vector-width"="512" "stackrealign"'


@cache
def host() -> Processor:
    """Return the processor this process runs on, with all its features and its full vector width."""
    found = llvm.get_host_cpu_features()
    triple, name = llvm.get_process_triple(), llvm.get_host_cpu_name()
    is_arm = triple.startswith(("aarch64", "arm64"))
    has = {**found, "neon": is_arm}
    bits, registers = next(((bits, n) for feature, bits, n in _REGISTERS if has.get(feature)), _SMALLEST_REGISTERS)
    features = tuple(f"{'+' if there else '-'}{feature}" for feature, there in found.items())
    # LLVM keeps to half of the registers on processors that once ran slower with the whole of them
    features += ("-prefer-256-bit",) if bits == 512 else ()
    has_tiles = bits == 512 and bool(found.get("amx-int8")) and _may_use_tiles()
    fused, half = (is_arm or bool(found.get(feature)) for feature in ("fma", "f16c"))
    return Processor(name, triple, name, features, bits, registers, fused, half, has_tiles)


_agreed: Processor | None = None


def chosen(name: str | None = None) -> Processor:
    """Return the processor that code of this process is made for: the one called `name`, else what the ranks have
    agreed on, else what $SPMD_PROCESSOR says, else this one. UsageError for what does not run here.
    """
    if name is None and _agreed is not None:
        return _agreed
    return _of(name or requested())


def agree_on(processor: Processor) -> None:
    """From now on code is made for `processor`, unless its user says otherwise."""
    global _agreed
    _agreed = processor


@cache
def _of(name: str) -> Processor:
    return host() if name == HOST else runnable(named(name), host())


def _may_use_tiles() -> bool:
    """Return whether Linux lets this process use tile registers, which it has to be asked for before their first use.

    Threads, also those that are there already, and processes forked from this one have what it is given.
    """
    if not IS_LINUX:
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0)


def target_machine(processor: Processor, *, optimizing: bool = True) -> llvm.TargetMachine:
    """Return a new machine that emits position-independent code for `processor`."""
    _initialize(processor.architecture)
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(
        cpu=processor.cpu,
        features=processor.target_features,
        opt=2 if optimizing else 0,
        reloc="pic",
        codemodel="small",
    )


#: LLVM's tables of targets are filled by one thread at a time.
_LOCK = threading.Lock()


def _initialize(architecture: str) -> None:
    with _LOCK:
        _initialize_once(architecture == host().architecture)


@cache
def _initialize_once(is_native: bool) -> None:
    if is_native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
