"""Bytecode and portable artifacts that are written here are read alike, here and by the reference."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spmd
from spmd.artifacts.bytecode import write_bytecode
from spmd.artifacts.sections import DURABLE
from spmd.artifacts.vhlo.ops import parse_version
from spmd.syntax import difference
from tests.artifacts import reference
from tests.artifacts.programs import DOUBLE, NEWS, PROGRAMS, QUANTIZED, REDUCE, SINCE, UNKNOWN

EVERYTHING = {**PROGRAMS, "quantized": QUANTIZED}
#: The version of VHLO from which on the reference's ops have the attributes that are declared here.
DECLARED = (1, 20)


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("name", EVERYTHING)
def test_bytecode_comes_back(name: str, version: int) -> None:
    module = spmd.parse(EVERYTHING[name])
    data = write_bytecode(module, version=version)
    assert difference(module, spmd.parse(data)) is None
    # Later versions have an op's properties as one release of StableHLO declares it.
    if name in PROGRAMS and (version <= DURABLE or parse_version(reference.VERSIONS[-1]) >= DECLARED):
        assert difference(module, spmd.parse(reference.text_of(data))) is None


@pytest.mark.sampled(34)
@pytest.mark.parametrize("version", reference.VERSIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_reads_portable_artifacts(name: str, version: str) -> None:
    module = spmd.parse(PROGRAMS[name])
    if parse_version(version) < parse_version(SINCE.get(name, "0.9")):
        with pytest.raises(spmd.ConversionError, match=r"VHLO .* cannot hold it: .* supported from version"):
            spmd.serialize(module, version=version)
        return
    data = spmd.serialize(module, version=version)
    assert difference(spmd.parse(reference.text_of(data)), spmd.parse(data)) is None
    assert difference(spmd.parse(data), module) is None


@pytest.mark.parametrize("version", ["minimum", "0.17.0", "current"])
def test_quantized_types_come_back(version: str) -> None:
    """The specification's per-axis types came with version 0.18."""
    module = spmd.parse(QUANTIZED)
    if version == "current":
        assert difference(module, spmd.parse(spmd.serialize(module, version=version))) is None
    else:
        with pytest.raises(spmd.ConversionError, match=r"is supported from version 0\.18"):
            spmd.serialize(module, version=version)


@pytest.mark.parametrize("name", NEWS)
def test_what_a_version_brought_the_one_before_cannot_hold(name: str) -> None:
    before, text = NEWS[name]
    module = spmd.parse(text)
    major, minor = parse_version(before)
    after = "1.0.0" if (major, minor) == (0, 20) else f"{major}.{minor + 1}.0"
    with pytest.raises(spmd.ConversionError, match=rf"VHLO {before} cannot hold it: .*supported from version"):
        spmd.serialize(module, version=f"{before}.0")
    data = spmd.serialize(module, version=after)
    assert difference(module, spmd.parse(data)) is None
    assert difference(module, spmd.parse(reference.text_of(data))) is None
    assert reference.portable(text, f"{before}.0") is None


#: What no version of VHLO has a code for, nor may have beside it: attributes of an op, types of an argument, ops.
NOWHERE_ATTRIBUTES = (
    "#my.attr<1>", "3 : i17", "[{y = 1 : i3}]", '"typed" : i32', "#stablehlo.dot<lhs_contracting_dimensions = [1]>",
    'dense<"a"> : tensor<1x!my.string>', "tensor<2xi3>", "#mhlo.sharding<x>",
)  # fmt: skip
NOWHERE_TYPES = ("!my.type", "tensor<i17>", "tensor<2xcomplex<i32>>", 'tensor<2xf32, "x">', "vector<2xf32>", "ui1")
NOWHERE_OPS = {
    "my.op": '"my.op"(%a) : (tensor<2xi32>) -> tensor<2xi32>',
    "stablehlo.compute_reshape_shape": (
        '"stablehlo.compute_reshape_shape"(%i, %a) : (index, tensor<2xi32>) -> tensor<2xi32>'
    ),
}  # fmt: skip


def refuses(text: str, op: str, words: str) -> None:
    """Every version refuses the program, by an error that tells op, place and version."""
    module = spmd.parse(text, "program.mlir")
    assert difference(module, spmd.parse(write_bytecode(module))) is None
    for version, shown in (("minimum", "0.9"), ("1.0.0", "1.0"), ("1.11.0", "1.11"), ("current", "1.22")):
        told = rf"program\.mlir:\d+:\d+: {op}: VHLO {shown} cannot hold it: no version has {words}"
        with pytest.raises(spmd.ConversionError, match=told):
            spmd.serialize(module, version=version)


@pytest.mark.parametrize("attribute", NOWHERE_ATTRIBUTES)
def test_an_attribute_that_no_version_has_is_refused(attribute: str) -> None:
    words = "(attributes|types) such as .+"
    refuses(f"func.func @f(%a: tensor<f32>) {{ %0 = stablehlo.abs %a {{x = {attribute}}} : tensor<f32>\n return }}",
            "stablehlo.abs", words)  # fmt: skip


@pytest.mark.parametrize("type", NOWHERE_TYPES)
def test_a_type_that_no_version_has_is_refused(type: str) -> None:
    refuses(f"func.func @f(%a: {type}) {{ return }}", "func.func", "types such as .+")


@pytest.mark.parametrize("name", NOWHERE_OPS)
def test_an_op_that_no_version_has_is_refused(name: str) -> None:
    text = f"func.func @f(%i: index, %a: tensor<2xi32>) {{ %0 = {NOWHERE_OPS[name]}\n return }}"
    refuses(text, name.replace(".", r"\."), "this op")


@pytest.mark.parametrize("dialect", ["chlo", "shape", "arith"])
def test_dialects_that_readers_know_stand_beside_it(dialect: str) -> None:
    """Since version 1.11."""
    body = {
        "chlo": "chlo.erf %a : tensor<2xf32> -> tensor<2xf32>",
        "shape": "shape.shape_of %a : tensor<2xf32> -> tensor<1xindex>",
        "arith": "arith.constant 3 : index",
    }[dialect]
    module = spmd.parse(f"func.func @f(%a: tensor<2xf32>) {{ %0 = {body}\n return }}")
    with pytest.raises(spmd.ConversionError, match=r"VHLO 1\.10 cannot hold it: .* supported from version 1\.11"):
        spmd.serialize(module, version="1.10.0")
    data = spmd.serialize(module, version="1.11.0")
    assert difference(module, spmd.parse(data)) is None
    assert difference(module, spmd.parse(reference.text_of(data))) is None


def test_a_constant_of_equal_elements_is_one_in_every_form() -> None:
    text = "func.func @f() { %0 = stablehlo.constant dense<[[1, 1], [1, 1]]> : tensor<2x2xi8>\n return }"
    for module in (spmd.parse(text), spmd.parse(write_bytecode(spmd.parse(text)))):
        assert "dense<1> : tensor<2x2xi8>" in str(module)
    zeros = text.replace("i8", "f32").replace("[[1, 1], [1, 1]]", "[[0.0, -0.0], [0.0, -0.0]]")
    assert "dense<[[" in str(spmd.parse(zeros))


def test_places_in_the_source_are_written() -> None:
    place = '"n"(callsite("a.py":1:2 at fused["b.py":3:4 to :9, "c"]))'
    text = f"func.func @f(%a: tensor<f32>) {{ %0 = stablehlo.abs %a : tensor<f32> loc({place})\n return }}"
    module = spmd.parse(text)
    again = spmd.parse(spmd.serialize(module))
    assert again.functions[0].body.ops[0].debug_location == place
    older = spmd.parse(spmd.serialize(module, version="1.0.0"))
    assert older.functions[0].body.ops[0].debug_location == place.replace(" to :9", "")


def test_versions_are_told_as_they_are() -> None:
    module = spmd.parse(REDUCE)
    assert spmd.serialize(module)[:32].startswith(b"ML\xefR\x0dStableHLO_v1.22.0+spmd")
    for wrong in ("0.8.0", "1.99.0", "newest", "1", 1):
        with pytest.raises(spmd.UsageError, match="version"):
            spmd.serialize(module, version=wrong)  # type: ignore[arg-type]


def test_an_unknown_dialect_comes_back() -> None:
    module = spmd.parse(UNKNOWN)
    assert difference(module, spmd.parse(write_bytecode(module))) is None


FORMATS = {
    "text": b"module",
    "generic": b'"builtin.module"',
    "bytecode": b"ML\xefR",
    "vhlo@1.0.0": b"ML\xefR",
    "hlo": b"HloModule",
}


@pytest.mark.parametrize("format", FORMATS)
def test_saved_programs_are_loaded(format: str, tmp_path: Path) -> None:
    file = tmp_path / "program"
    spmd.save(spmd.parse(DOUBLE), file, format=format)
    assert file.read_bytes().startswith(FORMATS[format])
    (got,) = spmd.compile(spmd.load(file))(np.float32([1, 2, 3]))
    assert got.tolist() == [2, 4, 6]


def test_the_command_converts(tmp_path: Path) -> None:
    text, there, back = tmp_path / "p.mlir", tmp_path / "p.mlirbc", tmp_path / "q.mlir"
    text.write_text(PROGRAMS["regions"])
    for left, right in ((text, there), (there, back)):
        subprocess.run([sys.executable, "-m", "launch", "convert", left, right], check=True)
    assert there.read_bytes()[:4] == b"ML\xefR"
    assert difference(spmd.load(text), spmd.load(back)) is None


@pytest.mark.parametrize("name", ["p.onnx", "p.pb", "p.mlirb", "p.mlir.gz"])
def test_files_of_other_kinds_are_not_written_as_text(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    with pytest.raises(spmd.UsageError, match=r"are written to \.mlir, .*; a file of another kind needs a format"):
        spmd.save(spmd.parse(DOUBLE), file)
    assert not file.exists()
    spmd.save(spmd.parse(DOUBLE), file, format="text")
    assert file.read_bytes().startswith(b"module")
