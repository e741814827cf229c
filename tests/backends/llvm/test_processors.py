"""Processors as values: what they share, objects for each of them, and the same bits from all that run here."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spmd
from spmd.ahead import compile_ahead
from spmd.backends.llvm.jit.processor import chosen, host
from spmd.support.processor import TARGETS, Processor, common, named, runnable
from tests.backends import bit_programs
from tests.backends.bit_programs import programs, run

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
TEXT = """func.func @main(%x: tensor<37xf32>, %h: tensor<37xf16>, %a: tensor<37x9xi8>, %b: tensor<9x5xi8>)
    -> (tensor<37xf32>, tensor<37xf16>, tensor<37x5xi32>) {
  %0 = stablehlo.exponential %x : tensor<37xf32>
  %1 = stablehlo.tanh %h : tensor<37xf16>
  %2 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<37x9xi8>, tensor<9x5xi8>) -> tensor<37x5xi32>
  return %0, %1, %2 : tensor<37xf32>, tensor<37xf16>, tensor<37x5xi32>
}"""


def run_here(names: tuple[str, ...]) -> list[str]:
    """Those of `names` whose code this machine runs."""
    found = []
    for name in names:
        try:
            runnable(named(name), host())
        except spmd.UsageError:
            continue
        found.append(name)
    return found


HERE = run_here(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_an_object_and_a_header_for_each_target(target: str) -> None:
    """Of its system's format and its architecture; the function is there for a linker, as C spells it there."""
    made = compile_ahead(spmd.parse(TEXT), name="step", processor=target)
    image = made.object
    if "darwin" in target:
        magic, architecture = struct.unpack("<II", image[:8])
        assert (magic, architecture) == (0xFEEDFACF, 0x0100000C)
        assert b"\0_step\0" in image
    else:
        assert image[:5] == b"\x7fELF\x02"
        assert struct.unpack("<H", image[18:20]) == (183 if target.startswith("aarch64") else 62,)
        assert b"\0step\0" in image
    assert "void step(" in made.header
    assert named(target).cpu in made.header


@pytest.mark.skipif("x86-64-v2" not in HERE, reason="another family of processors")
def test_objects_for_older_processors_have_no_newer_registers(tmp_path: Path) -> None:
    """In what objdump makes of them, where it is installed: xmm, ymm and zmm are registers of 128, 256 and 512 bits."""
    for target, absent in (("x86-64-v2", ("%ymm", "%zmm")), ("x86-64-v3", ("%zmm",))):
        file = tmp_path / f"{target}.o"
        file.write_bytes(compile_ahead(spmd.parse(TEXT), name="step", processor=target).object)
        try:
            listed = subprocess.run(["objdump", "-d", file], capture_output=True, text=True, check=True, timeout=60)
        except FileNotFoundError:
            pytest.skip("no objdump")
        assert "%xmm" in listed.stdout
        assert not any(register in listed.stdout for register in absent)


@pytest.mark.parametrize("name", [None, "host", *HERE])
def test_a_program_is_compiled_for_the_processor_that_is_asked_for(name: str | None) -> None:
    rng = np.random.default_rng(1)
    x, h = rng.normal(size=37).astype(np.float32), rng.normal(size=37).astype(np.float16)
    a, b = rng.integers(-128, 128, (37, 9), np.int8), rng.integers(-128, 128, (9, 5), np.int8)
    exponential, tangent, product = spmd.compile(spmd.parse(TEXT), processor=name)(x, h, a, b)
    np.testing.assert_allclose(exponential, np.exp(x), rtol=3e-7)
    np.testing.assert_allclose(tangent, np.tanh(h.astype(np.float32)), rtol=1e-3)
    np.testing.assert_array_equal(product, a.astype(np.int32) @ b.astype(np.int32))


def test_a_processor_that_is_none_or_does_not_run_here_is_refused() -> None:
    with pytest.raises(spmd.UsageError, match=r"option processor must be one of host, x86-64-v2, .*got 'z80'"):
        spmd.compile(spmd.parse(TEXT), processor="z80")
    other = "x86-64-v2" if host().architecture == "aarch64" else "aarch64-linux-gnu"
    with pytest.raises(spmd.UsageError, match=f"code for {other} does not run here.*spmd compile --target {other}"):
        spmd.compile(spmd.parse(TEXT), processor=other)
    lesser = Processor("lesser", host().triple, "lesser", tuple(f"-{each[1:]}" for each in host().features))
    greater = Processor("greater", host().triple, "greater", ("+avx999",))
    with pytest.raises(spmd.UsageError, match=r"code for greater does not run here: lesser lacks \+avx999"):
        runnable(greater, lesser)


def test_the_environment_chooses_and_is_told_what_it_may_say() -> None:
    script = "from spmd.backends.llvm.jit.processor import chosen; print(chosen().name)"
    for said, expected in ((HERE[0], HERE[0]), ("", host().name), ("host", host().name), ("z80", "got 'z80'")):
        done = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "SPMD_PROCESSOR": said}, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert expected in done.stdout + done.stderr


@given(st.lists(st.sampled_from([named(name) for name in LEVELS]), min_size=1, max_size=4))
def test_what_levels_share_is_the_lowest_of_them(levels: list[Processor]) -> None:
    shared = common(levels)
    lowest = min(levels, key=lambda each: each.vector_bits)
    assert shared is not None
    assert (shared.name, shared.vector_bits, shared.has_fma) == (lowest.name, lowest.vector_bits, lowest.has_fma)
    for each in levels:
        assert {feature for feature in shared.features if feature[0] == "+"} <= set(each.features)
    assert common([*levels, named("aarch64-linux-gnu")]) is None


def test_what_two_processors_share_has_no_feature_of_one_alone() -> None:
    left = Processor("left", "t-", "a", ("+x", "+y", "-z"), 512, 32)
    right = Processor("right", "t-", "b", ("+x", "-y", "+z"), 256, 16, has_half=False)
    shared = common([left, right])
    assert shared == common([right, left])
    assert shared is not None
    assert shared.features == ("+x", "-y", "-z")
    assert (shared.vector_bits, shared.vector_registers, shared.has_half) == (256, 16, False)
    assert shared.key not in (left.key, right.key)


@pytest.mark.skipif("x86-64-v3" not in HERE, reason="another family of processors")
def test_halves_are_converted_alike_with_and_without_instructions_for_it() -> None:
    """All of f16, and floats at and beside every number and every middle of two."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        exact = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
        middles = (exact[:-1] + exact[1:]) // 2
        edges = np.array([0x477FEFFF, 0x477FF000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC12345, 1], np.uint32)
        floats = np.concatenate([exact, middles, middles - 1, middles + 1, edges])
    floats = np.concatenate([floats, floats | 0x80000000]).view(np.float32)
    text = (
        f"func.func @main(%h: tensor<{halves.size}xf16>, %f: tensor<{floats.size}xf32>) -> "
        f"(tensor<{halves.size}xf32>, tensor<{floats.size}xf16>) {{\n"
        f"  %0 = stablehlo.convert %h : (tensor<{halves.size}xf16>) -> tensor<{halves.size}xf32>\n"
        f"  %1 = stablehlo.convert %f : (tensor<{floats.size}xf32>) -> tensor<{floats.size}xf16>\n"
        f"  return %0, %1 : tensor<{halves.size}xf32>, tensor<{floats.size}xf16>\n}}"
    )
    wide, narrow = (
        spmd.compile(spmd.parse(text), processor=name)(halves, floats) for name in ("x86-64-v3", "x86-64-v2")
    )
    for one, other in zip(wide, narrow, strict=True):
        assert one.tobytes() == other.tobytes()


# --- the same bits ---

BIT_PROGRAMS = list(programs())


def compared(chosen_programs: list[bit_programs.BitProgram]) -> dict[str, set[str]]:
    """The programs whose bits differ between the processors that run here."""
    digests = {each.name: {run(each, processor=name) for name in HERE} for each in chosen_programs}
    return {name: found for name, found in digests.items() if len(found) > 1}


def test_some_programs_give_the_same_bits_on_all_processors() -> None:
    """One of 37: of each kind some."""
    assert compared(BIT_PROGRAMS[::37]) == {}


@pytest.mark.slow
def test_all_programs_give_the_same_bits_on_all_processors() -> None:
    assert compared(BIT_PROGRAMS) == {}


@pytest.mark.slow
@pytest.mark.skipif("x86-64-v2" not in HERE, reason="another family of processors")
def test_no_library_adds_up_what_is_to_be_reproducible() -> None:
    """BLAS chooses its code by the processor, which it takes for an older one here."""
    script = (
        "import json; from tests.backends.bit_programs import programs, run; "
        "print(json.dumps({each.name: run(each) for each in programs() if each.ordered}))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, **more}, capture_output=True, text=True, timeout=600,
            check=True,
        ).stdout
        for more in ({}, {"OPENBLAS_CORETYPE": "Nehalem", "SPMD_PROCESSOR": "x86-64-v2"})
    ]  # fmt: skip
    assert found[0] == found[1]


def test_programs_for_comparing_are_many_and_of_all_kinds() -> None:
    names = [each.name for each in BIT_PROGRAMS]
    assert len(names) == len(set(names)) > 300
    assert chosen().name
