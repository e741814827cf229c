"""Bytecode that the reference writes is read as the text it was written from."""

import gzip
import io
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

import spmd
from spmd.artifacts.bytecode import write_bytecode
from spmd.artifacts.vhlo.ops import parse_version
from spmd.syntax import difference
from tests.artifacts import reference
from tests.artifacts.programs import PROGRAMS, SINCE


def expect_same(left: spmd.Module, right: spmd.Module) -> None:
    assert difference(left, right) is None
    assert str(left) == str(right)


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("name", PROGRAMS)
def test_bytecode_of_every_version_of_the_format(name: str, version: int) -> None:
    data = reference.bytecode(PROGRAMS[name], version)
    expect_same(spmd.parse(data), spmd.parse(PROGRAMS[name]))


@pytest.mark.sampled(34)
@pytest.mark.parametrize("version", reference.VERSIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_portable_artifacts_of_every_version(name: str, version: str) -> None:
    """VHLO says what StableHLO leaves to its default: what the reference reads is the measure, default or not."""
    data = reference.portable(PROGRAMS[name], version)
    if data is not None:
        expect_same(spmd.parse(data), spmd.parse(reference.text_of(data)))
    else:
        assert parse_version(version) < parse_version(SINCE[name])


def test_places_in_the_source_are_kept() -> None:
    place = '"n"(callsite("a.py":1:2 at fused["b.py":3:4, "c"]))'
    text = f"func.func @f(%a: tensor<f32>) {{ %0 = stablehlo.abs %a : tensor<f32> loc({place})\n return }}"
    module = spmd.parse(reference.bytecode(text, 6))
    assert module.functions[0].body.ops[0].debug_location == place


def test_an_error_names_byte_and_section() -> None:
    data = bytearray(reference.bytecode(PROGRAMS["regions"], 6))
    with pytest.raises(spmd.ParseError, match=r"p\.mlirbc: byte \d+ \(header\): the section of .* has \d+ bytes"):
        spmd.parse(bytes(data[:-9]), "p.mlirbc")


def test_a_program_that_breaks_a_constraint_is_told_with_its_byte() -> None:
    text = "func.func @f(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {\n  return %a : tensor<2x3xf32>\n}"
    module = spmd.parse(reference.bytecode(text, 6), "p.mlirbc")
    module.functions[0].body.ops[0].operands = ()
    with pytest.raises(spmd.VerificationError, match=r"p\.mlirbc: byte \d+ \(IR\): func.return"):
        spmd.verify(module)


@pytest.mark.parametrize("kind", ["npy", "npz", "gz"])
def test_files_that_are_known_to_hold_no_program_are_named(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.{kind}"
    if kind == "gz":
        file.write_bytes(gzip.compress(b"module {}"))
    else:
        (np.save if kind == "npy" else np.savez)(file, np.ones(3))
    told = {"npy": "an array file of NumPy", "npz": r"arrays of NumPy \(.npz\)", "gz": "compressed by gzip"}[kind]
    with pytest.raises(spmd.ParseError, match=rf"a\.{kind}: {told}, not a program$"):
        spmd.load(file)


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (b"\x89HDF\r\n", "an HDF5 file, as Keras writes, not a program$"),
        (b'\x08\x00\x00\x00\x00\x00\x00\x00{"a":{}}', "weights in the safetensors format, not a program$"),
        (b"PK\x03\x04 of nothing", "a zip archive, which is damaged, not a program$"),
        (pickle.dumps([1, 2]), "a pickle of Python's, not a program$"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "what torch.save pickled, weights or a module, not StableHLO"),
    ],
)
def test_first_bytes_of_files_that_hold_no_program(head: bytes, told: str) -> None:
    with pytest.raises(spmd.ParseError, match=f"^a: {told}"):
        spmd.parse(head, "a")


@pytest.mark.parametrize(
    ("names", "told", "line"),
    [
        (
            ["m/models/model.json", "m/archive_format"],
            "a program that torch.export saved",
            "torch.export.load('m.pt2')",
        ),
        (["version", "serialized_exported_program.json"], "a program that torch.export", "torch.export.load('m.pt2')"),
        (
            ["m/archive_format", "m/data/aotinductor/a/b.so"],
            "machine code that AOTInductor",
            "torch.export.export(model",
        ),
        (["m/data.pkl", "m/code/__torch__.py", "m/constants.pkl"], "a TorchScript program", "that was scripted"),
        (["m/data.pkl", "m/data/0", "m/version"], "what torch.save pickled", "with these weights"),
    ],
)
def test_files_of_pytorch_are_named_with_two_lines_that_export_them(names: list[str], told: str, line: str) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    with pytest.raises(spmd.ParseError) as caught:
        spmd.parse(content.getvalue(), "m.pt2")
    first, *lines = str(caught.value).splitlines()
    assert first.startswith(f"m.pt2: {told}") and "not StableHLO" in first
    assert len(lines) == 2 and line in lines[0] and "exported_program_to_stablehlo(exported).save(" in lines[1]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("# A comment\nimport jax.numpy as jnp\n", "Python, not a program: `python train.py` runs it"),
        ('"""What it does."""\n\nfrom jax import lax\n', "Python, not a program"),
        ("@jax.jit\ndef f(x):\n  return x\n", "Python, not a program"),
        (' {"a": [1, 2]}', "JSON, not a program"),
        ("[[0, 1], [2, 3]]", "JSON, not a program"),
        ("<!DOCTYPE html>", "a page or XML, not a program"),
        ("// A comment\n#include <stdio.h>\n", "C, not a program"),
    ],
)
def test_texts_that_hold_no_program_are_named(text: str, kind: str) -> None:
    with pytest.raises(spmd.ParseError, match=re.escape(f"train.py: {kind}")):
        spmd.parse(text, name="train.py")


def test_a_line_of_a_program_is_what_an_error_of_one_shows() -> None:
    with pytest.raises(spmd.ParseError, match=r"x.mlir:2:3: custom form of unknown operation 'import'"):
        spmd.parse("func.func @main() {\n  import x\n}", name="x.mlir")


def test_large_constants_are_views_of_the_file(tmp_path: Path) -> None:
    constant = f'dense<"0x{"00010203" * 500000}"> : tensor<500000xf32>'
    text = f"func.func @f() {{ %0 = stablehlo.constant {constant}\n return }}"
    file = tmp_path / "program"
    file.write_bytes(reference.bytecode(text, 6))
    array = spmd.load(file).functions[0].body.ops[0]["value"].array
    assert not array.flags.owndata
    assert (array.view(np.uint32) == 0x03020100).all()


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_constants_may_lie_anywhere_in_a_file(shift: int, backends: tuple[str, ...]) -> None:
    """A file's elements lie at any address; programs compute with them all the same."""
    digits = np.arange(300000, dtype=np.float32).tobytes().hex()
    text = f"""func.func @main(%a: tensor<2x3xf32>) -> (tensor<2x100000xf32>, tensor<3x100000xf32>) {{
      %0 = stablehlo.constant dense<"0x{digits}"> : tensor<3x100000xf32>
      %1 = stablehlo.dot_general %a, %0, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x100000xf32>) -> tensor<2x100000xf32>
      %2 = stablehlo.negate %0 : tensor<3x100000xf32>
      return %1, %2 : tensor<2x100000xf32>, tensor<3x100000xf32>
    }}"""  # noqa: E501
    data = memoryview(bytes(shift) + write_bytecode(spmd.parse(text)))[shift:]
    x = np.float32([[1, 2, 3], [0, 0, 1]])
    product, negative = spmd.compile(spmd.parse(data), backends=backends)(x)
    weights = np.arange(300000, dtype=np.float32).reshape(3, 100000)
    np.testing.assert_allclose(product, x @ weights, rtol=1e-6)
    np.testing.assert_array_equal(negative, -weights)


@pytest.mark.parametrize(
    ("name", "other", "dialect"),
    [
        (b"return", b"retupn", "func"),
        (b"multiply", b"multipla", "stablehlo"),
        (b"multiply", b"mult\xffply", "stablehlo"),
    ],
)
def test_an_op_that_its_dialect_does_not_have_is_refused(name: bytes, other: bytes, dialect: str) -> None:
    module = spmd.parse("""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.multiply %x, %x : tensor<2xf32>
      return %0 : tensor<2xf32>
    }""")
    data = write_bytecode(module)
    assert name in data
    with pytest.raises(spmd.ParseError, match=rf"not an op of the {dialect} dialect|not an op name|UTF-8"):
        spmd.parse(data.replace(name, other))
