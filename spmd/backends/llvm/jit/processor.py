"""The host processor, and LLVM target machines."""

from __future__ import annotations

import ctypes
import threading
from functools import cache

import llvmlite.binding as llvm

from collectives.system import IS_LINUX
from spmd.support.processor import HOST, Processor, named, requested, runnable

#: Vector register width in bits and register count by feature, widest first.
_REGISTERS = (("avx512f", 512, 32), ("avx", 256, 16), ("neon", 128, 32))
_SMALLEST_REGISTERS = 128, 16
#: Linux's system call arch_prctl on x86-64, its ARCH_REQ_XCOMP_PERM, and the state number of AMX tile data.
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18

#: Attributes of every function. Spilled vector registers are aligned to cache lines: the ABI aligns the stack to 16
#: bytes only, and loops took twice the time if it happened to be misaligned.
CODE_ATTRIBUTES = '"prefer-vector-width"="512" "stackrealign"'


@cache
def host() -> Processor:
    """Return the host processor, with all features and its full vector width."""
    found = llvm.get_host_cpu_features()
    triple, name = llvm.get_process_triple(), llvm.get_host_cpu_name()
    is_arm = triple.startswith(("aarch64", "arm64"))
    has = {**found, "neon": is_arm}
    bits, registers = next(((bits, n) for feature, bits, n in _REGISTERS if has.get(feature)), _SMALLEST_REGISTERS)
    features = tuple(f"{'+' if there else '-'}{feature}" for feature, there in found.items())
    # LLVM prefers half-width vectors on processors whose full width once lowered the clock
    features += ("-prefer-256-bit",) if bits == 512 else ()
    has_tiles = bits == 512 and bool(found.get("amx-int8")) and _may_use_tiles()
    fused, half = (is_arm or bool(found.get(feature)) for feature in ("fma", "f16c"))
    return Processor(name, triple, name, features, bits, registers, fused, half, has_tiles)


_agreed: Processor | None = None


def chosen(name: str | None = None) -> Processor:
    """Return the target processor of this process: `name`, else the one agreed on by ranks, else $SPMD_PROCESSOR, else
    the host. UsageError if it does not run here.
    """
    if name is None and _agreed is not None:
        return _agreed
    return _of(name or requested())


def agree_on(processor: Processor) -> None:
    """Set the default target to `processor`."""
    global _agreed
    _agreed = processor


@cache
def _of(name: str) -> Processor:
    return host() if name == HOST else runnable(named(name), host())


def _may_use_tiles() -> bool:
    """Request permission from Linux to use AMX tiles; return whether it is granted.

    It applies to all threads, and to forked processes.
    """
    if not IS_LINUX:
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0)


def target_machine(processor: Processor, *, optimizing: bool = True) -> llvm.TargetMachine:
    """Return a new target machine for position-independent code on `processor`."""
    _initialize(processor.architecture)
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(
        cpu=processor.cpu,
        features=processor.target_features,
        opt=2 if optimizing else 0,
        reloc="pic",
        codemodel="small",
    )


#: LLVM's target registry is not thread safe.
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
