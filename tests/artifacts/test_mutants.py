"""Files with bytes changed, added or taken away are read, or refused with an SpmdError: nothing else happens."""

import io
import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import spmd
from spmd.artifacts.bytecode import write_bytecode
from spmd.artifacts.encodings.builtin import BoundsAttr, tensor_of
from spmd.artifacts.formats import read_binary
from spmd.artifacts.sections import read_container
from spmd.artifacts.stream import ByteReader
from spmd.artifacts.tables import Tables
from spmd.ir.attributes import ArrayAttr
from spmd.syntax.attribute_printer import format_attribute
from spmd.types import F32
from tests.artifacts.programs import PROGRAMS, QUANTIZED, UNKNOWN
from tests.artifacts.test_torch_saved import BIAS, META, MODULE, WEIGHT

MANY = b"\0" + b"\xff" * 8  # the largest integer of variable width


def mutant(data: bytes, random: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(changed))
        kind = random.randrange(5)
        if kind == 0:
            changed[at] = random.randrange(256)
        elif kind == 1:
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 2:
            changed[at : at + 1 + len(MANY)] = MANY
        elif kind == 3:
            del changed[at : at + random.randrange(1, 9)]
        else:
            changed[at:at] = random.randbytes(random.randrange(1, 9))
        if not changed:
            break
    return bytes(changed)


def exported() -> bytes:
    jax = pytest.importorskip("jax")
    from jax import export

    function = jax.jit(lambda x: {"a": x @ x, "b": [x.sum()]})
    return bytes(export.export(function)(jax.ShapeDtypeStruct((3, 3), "float32")).serialize(vjp_order=1))


@pytest.mark.parametrize("form", ["bytecode", "the first version", "portable", "exported"])
def test_a_mutant_is_read_or_refused(form: str) -> None:
    draw = random.Random(form)
    texts = [*PROGRAMS.values(), QUANTIZED, *([UNKNOWN] if form != "portable" else [])]
    modules = [spmd.parse(text) for text in texts]
    if form == "exported":
        files = [exported()]
    elif form == "portable":
        files = [spmd.serialize(module) for module in modules]
    else:
        files = [write_bytecode(module, version=0 if form == "the first version" else 6) for module in modules]
    read = 0
    for _ in range(1500):
        try:
            module = read_binary(mutant(draw.choice(files), draw), "mutant")
            if module is None:
                continue
            for op in module.walk():
                assert op.debug_location is None or isinstance(op.debug_location, str)
            spmd.verify(module)
        except spmd.SpmdError:
            continue
        assert can_be_written(module)
        read += 1
    assert read > 20


def test_a_mutant_of_a_saved_folder_is_read_or_refused(tmp_path: Path) -> None:
    draw = random.Random(0)
    files = {"functions/forward.meta": json.dumps(META).encode(), "functions/forward.mlir": MODULE.encode()}
    for name, array in {"data/fc.weight": WEIGHT, "data/fc.bias": BIAS, "constants/0": np.float32(10)}.items():
        content = io.BytesIO()
        np.save(content, array)
        files[name] = content.getvalue()
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    read = 0
    for _ in range(600):
        spoilt = draw.choice(sorted(files))
        for name, data in files.items():
            (tmp_path / name).write_bytes(mutant(data, draw) if name == spoilt else data)
        try:
            spmd.load(tmp_path)
        except spmd.SpmdError:
            continue
        read += 1
    assert read > 20


def can_be_written(module: spmd.Module) -> bool:
    """What was read and is sound can be printed, and written again."""
    return bool(str(module)) and write_bytecode(module)[:4] == b"ML\xefR"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_that_ends_early_is_refused(name: str) -> None:
    data = write_bytecode(spmd.parse(PROGRAMS[name]))
    for length in range(4, len(data), 7):
        with pytest.raises(spmd.SpmdError):
            spmd.parse(data[:length])


def test_attributes_that_double_forty_times_are_refused() -> None:
    """Each array of the file is made to refer twice to the next: a thousand bytes that no memory could write out."""
    arrays = ", ".join(f"x.a{number:02} = [{number} : i32, 99 : i32]" for number in range(40))
    data = bytearray(write_bytecode(spmd.parse(f"func.func @f() attributes {{{arrays}}} {{ return }}")))
    tables = Tables(read_container(bytes(data), "f"))
    places = []
    for index, (_, start, end) in enumerate(tables._attributes):
        attribute = tables.attribute(index, ByteReader(b"", "f", ""))
        if isinstance(attribute, ArrayAttr):
            assert end - start == 4  # its code, that it has two elements, and their numbers
            places.append((format_attribute(attribute), start, index << 1 | 1))
    places.sort()
    for (_, start, _), (_, _, number) in pairwise(places):
        data[start + 2] = data[start + 3] = number
    with pytest.raises(
        spmd.ParseError, match=r"byte \d+ \(section of attributes and types\): an attribute must have at most"
    ):
        spmd.parse(bytes(data))


def test_what_no_text_could_say_is_refused() -> None:
    """A visibility that is none, and a negative bound: their text would not be read back."""
    text = "func.func private @f() { return }\nfunc.func @main() { func.call @f() : () -> () return }"
    data = spmd.serialize(spmd.parse(text))
    assert data.count(b"private") == 1
    with pytest.raises(spmd.SpmdError, match="sym_visibility must be public, private or nested, got 'pbivate'"):
        spmd.parse(data.replace(b"private", b"pbivate"))
    with pytest.raises(ValueError, match="bounds must not be negative"):
        tensor_of((None,), F32, BoundsAttr((-5,)))
