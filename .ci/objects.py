"""Programs of the conformance folder as objects for another processor, linked into one program of C and run by qemu.

    python .ci/objects.py TARGET FOLDER [EVERY]

Takes every EVERY-th program of FOLDER whose `main` computes of `@inputs()`: these become its arguments. It is compiled
for TARGET without Python; what it gives under qemu has the bits that it has here. A program that only Python runs, or
that calls LAPACK, is passed over. The last line tells how many gave the same bits, and how many did not.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import spmd
from spmd.ahead import compile_ahead

#: By target: the compiler of C, and what runs its programs. Nehalem has no AVX, Haswell no AVX-512.
TOOLS = {
    "aarch64-linux-gnu": ("aarch64-linux-gnu-gcc", ["qemu-aarch64-static"]),
    "x86-64-v2": ("gcc", ["qemu-x86_64-static", "-cpu", "Nehalem"]),
    "x86-64-v3": ("gcc", ["qemu-x86_64-static", "-cpu", "Haswell"]),
}
INPUTS = re.compile(r"^ *(%\w+)(?::\d+)? = call @inputs\(\) : \(\) -> (.*)$", re.M)
LEFT_OUT = re.compile(r"^.*(call @expected\(|@check\.|\bcheck\.expect).*\n", re.M)


@dataclass
class Compiled:
    """An object, with the arrays that it is called with and those that it gives here."""

    name: str
    image: bytes
    header: str
    arguments: list[np.ndarray]
    results: list[np.ndarray]


def with_arguments(text: str) -> str | None:
    """The program whose `main` is given what it took of `@inputs()`; None of another kind of program."""
    found = INPUTS.search(text)
    if found is None or text.count("@inputs()") != 2 or "@main()" not in text:
        return None
    name, types = found[1], re.findall(r"tensor<(?:[^<>]|<[^<>]*>)*>", found[2])
    text = LEFT_OUT.sub("", text[: found.start()] + text[found.end() :])
    several = len(types) > 1
    arguments = [f"%input{k}" for k in range(len(types))]
    for k, argument in enumerate(arguments):
        text = re.sub(rf"{re.escape(name)}#{k}\b" if several else rf"{re.escape(name)}\b", argument, text)
    listed = ", ".join(f"{argument}: {type}" for argument, type in zip(arguments, types, strict=True))
    return text.replace("@main()", f"@main({listed})", 1)


def compiled(file: Path, number: int, target: str) -> Compiled | None:
    """The program of `file` as an object; None where it has no native form, or needs a library."""
    text = file.read_text()
    taking = with_arguments(text)
    if taking is None:
        return None
    try:
        arguments = list(spmd.compile(spmd.parse(text, name=str(file)), function="inputs")())
        module = spmd.parse(taking, name=str(file))
        made = compile_ahead(module, name=f"f{number}", processor=target, reproducible=True)
    except spmd.CompileError:
        return None
    if "BLAS" in made.header:
        return None
    results = list(spmd.compile(module, reproducible=True)(*arguments))
    return Compiled(f"f{number}", made.object, made.header, arguments, results)


def driver(programs: list[Compiled]) -> str:
    """C that reads all arguments from its input, calls each function, and writes all results to its output."""
    lines = ["#include <stdio.h>", "#include <stdlib.h>", *(f'#include "{each.name}.h"' for each in programs)]
    lines += ["static void *room(size_t n) { return aligned_alloc(64, (n + 127) / 64 * 64); }", "int main(void) {"]
    for each in programs:
        lines.append("{")
        for kind, arrays in (("a", each.arguments), ("r", each.results)):
            for k, array in enumerate(arrays):
                lines.append(f"void *{kind}{k} = room({array.nbytes});")
                if kind == "a" and array.nbytes:
                    lines.append(f"if (fread(a{k}, 1, {array.nbytes}, stdin) != {array.nbytes}) return 1;")
        names = [f"a{k}" for k in range(len(each.arguments))] + [f"r{k}" for k in range(len(each.results))]
        lines.append(f"{each.name}({', '.join([*names, f'room({each.name.upper()}_SCRATCH_BYTES)'])});")
        lines += [f"fwrite(r{k}, 1, {array.nbytes}, stdout);" for k, array in enumerate(each.results)]
        lines.append("}")
    return "\n".join([*lines, "return 0;", "}", ""])


def bits(array: np.ndarray) -> bytes:
    """The bits of an array, of a NaN those of the usual one."""
    parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
    found = b""
    for part in parts:
        if part.dtype.kind not in "biu" and part.dtype.itemsize > 1:
            part = np.where(part != part, part.dtype.type(np.nan), part)
        found += np.ascontiguousarray(part).tobytes()
    return found


def run(programs: list[Compiled], target: str, folder: Path) -> bytes:
    compiler, emulator = TOOLS[target]
    for each in programs:
        (folder / f"{each.name}.o").write_bytes(each.image)
        (folder / f"{each.name}.h").write_text(each.header)
    (folder / "driver.c").write_text(driver(programs))
    objects = [f"{each.name}.o" for each in programs]
    subprocess.run([compiler, "-static", "-O0", "-o", "all", "driver.c", *objects, "-lm"], cwd=folder, check=True)
    given = b"".join(array.tobytes() for each in programs for array in each.arguments)
    return subprocess.run([*emulator, "./all"], cwd=folder, input=given, capture_output=True, check=True).stdout


def main() -> int:
    target, folder, every = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    files = sorted(folder.rglob("*.mlir"))[::every]
    found = [compiled(file, number, target) for number, file in enumerate(files)]
    programs = [each for each in found if each is not None]
    with tempfile.TemporaryDirectory() as room:
        output = run(programs, target, Path(room))
    place, different = 0, []
    for each in programs:
        for result in each.results:
            got = np.frombuffer(output[place : place + result.nbytes], result.dtype).reshape(result.shape)
            place += result.nbytes
            if bits(got) != bits(result):
                different.append(files[int(each.name[1:])].name)
    assert place == len(output)
    failed = sorted(set(different))
    print("".join(f"{name}: other bits than here\n" for name in failed), end="")
    print(f"{len(programs) - len(failed)} passed, {len(failed)} failed, {len(files) - len(programs)} skipped")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
