"""Processors as values: the compilation target, passed explicitly and never queried elsewhere.

Sources: the x86-64 psABI, section 3.1.1, has the levels of x86-64; LLVM's own names stand for processors and features.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spmd.errors import UsageError

#: The variable that sets the target of native code, unless the caller of spmd.compile does.
VARIABLE = "SPMD_PROCESSOR"
#: The processor that this process runs on.
HOST = "host"


@dataclass(frozen=True)
class Processor:
    """`triple` and `cpu` are spelled as LLVM does, and so are `features`, those that it has beyond its `cpu`'s own.

    `vector_bits` is the width of a vector register, of which there are `vector_registers`. `has_fma`: it adds a product
    in one rounding; `has_half`: it converts between f16 and f32; `has_tiles`: it has tile registers for products of
    8-bit integers, and this process may use them.
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    vector_bits: int = 128
    vector_registers: int = 16
    has_fma: bool = True
    has_half: bool = True
    has_tiles: bool = False

    @property
    def key(self) -> str:
        """A key that differs for processors whose code differs."""
        return f"{self.triple} {self.cpu} {self.target_features} {self.vector_bits} {self.has_tiles}"

    @property
    def target_features(self) -> str:
        """The features in LLVM's syntax."""
        return ",".join(self.features)

    @property
    def architecture(self) -> str:
        """The instruction set: x86_64, aarch64."""
        family = self.triple.partition("-")[0]
        return {"arm64": "aarch64", "amd64": "x86_64"}.get(family, family)

    @property
    def pause(self) -> str:
        """LLVM's name, with types, of the intrinsic that hints at a spin loop; then its argument."""
        return _PAUSES[self.architecture]

    def __str__(self) -> str:
        return f"{self.name}, vectors of {self.vector_bits} bits"


_PAUSES = {"x86_64": "void @llvm.x86.sse2.pause()", "aarch64": "void @llvm.aarch64.hint(i32 1)"}

_X86_64 = "x86_64-unknown-linux-gnu"
_V2 = ("+cx16", "+popcnt", "+sahf", "+sse3", "+sse4.1", "+sse4.2", "+ssse3")
_V3 = (*_V2, "+avx", "+avx2", "+bmi", "+bmi2", "+f16c", "+fma", "+lzcnt", "+movbe", "+xsave")
_V4 = (*_V3, "+avx512f", "+avx512bw", "+avx512cd", "+avx512dq", "+avx512vl")

#: The predefined processors, by name.
_NAMED = {
    each.name: each
    for each in (
        Processor("x86-64-v2", _X86_64, "x86-64-v2", _V2, has_fma=False, has_half=False),
        Processor("x86-64-v3", _X86_64, "x86-64-v3", _V3, 256),
        Processor("x86-64-v4", _X86_64, "x86-64-v4", (*_V4, "-prefer-256-bit"), 512, 32),
        Processor("aarch64-linux-gnu", "aarch64-unknown-linux-gnu", "generic", (), 128, 32),
        Processor("arm64-apple-darwin", "arm64-apple-macosx11.0.0", "apple-m1", (), 128, 32),
    )
}
#: The names that users can choose among.
TARGETS = tuple(_NAMED)


def named(name: str) -> Processor:
    """The processor called `name`; UsageError, which lists the known names, for any other."""
    found = _NAMED.get(name)
    if found is None:
        raise UsageError(f"a processor is {HOST!r} or one of {', '.join(TARGETS)}, got {name!r}")
    return found


def requested() -> str:
    """The processor that $SPMD_PROCESSOR names, else the host's."""
    return os.environ.get(VARIABLE) or HOST


def runnable(processor: Processor, host: Processor) -> Processor:
    """`processor` as code for `host`'s own system; UsageError, naming missing features, where `host` cannot run it."""
    if processor.architecture != host.architecture:
        raise UsageError(
            f"code for {processor.name} does not run here, on {host.architecture}; spmd compile --target "
            f"{processor.name} makes an object file of it"
        )
    lacking = [feature for feature in processor.features if feature[0] == "+" and feature not in host.features]
    if lacking:
        raise UsageError(f"code for {processor.name} does not run here: {host.name} lacks {' '.join(lacking)}")
    return replace(processor, triple=host.triple)


def for_linking(name: str, host: Processor) -> Processor:
    """The processor called `name`, for object files: of `host`'s own system, where that has this architecture."""
    if name == HOST:
        return host
    is_level = name.startswith("x86-64") and host.architecture == "x86_64"
    return replace(named(name), triple=host.triple) if is_level else named(name)


def common(processors: Sequence[Processor]) -> Processor | None:
    """The common subset of `processors`; None where they have different instruction sets."""
    first, *others = processors
    if all(each == first for each in others):
        return first
    if any((each.architecture, each.triple) != (first.architecture, first.triple) for each in others):
        return None
    least = min(processors, key=lambda each: (each.vector_bits, len(_present(each))))
    shared = set.intersection(*(_present(each) for each in processors))
    lacking = {feature for each in processors for feature in each.features if feature[0] == "-"}
    one_cpu = all(each.cpu == first.cpu for each in others)
    return replace(
        least,
        name=least.name if _present(least) == shared else f"what {len(set(processors))} processors share",
        cpu=first.cpu if one_cpu else _BASELINE.get(first.architecture, "generic"),
        features=(*sorted(shared), *sorted(lacking)),
        vector_registers=min(each.vector_registers for each in processors),
        has_fma=all(each.has_fma for each in processors),
        has_half=all(each.has_half for each in processors),
        has_tiles=all(each.has_tiles for each in processors),
    )


#: The features common to all processors of an instruction set.
_BASELINE = {"x86_64": "x86-64"}


def _present(processor: Processor) -> set[str]:
    return {feature for feature in processor.features if feature[0] == "+"}
