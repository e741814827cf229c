"""The system's C compiler, and a cache of its output."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from spmd.errors import CompileError
from spmd.support.compiled_cache import user_cache

#: A language without vendors' extensions, in which products and sums are not contracted.
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC")


@cache
def compiler() -> str:
    """The path of the compiler that $CC names, or of the system's. CompileError where there is none."""
    name = os.environ.get("CC") or "cc"
    found = shutil.which(name)
    if found is None:
        raise CompileError(f"a compiler of C is needed, and there is no {name!r}; $CC names another")
    return found


@cache
def version() -> str:
    """The first line of the compiler's version text."""
    done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def compiled(source: str, *how: str) -> bytes:
    """The output of compiling `source` with the flags `how`, -c or -shared. CompileError with its message."""
    flags = (*FLAGS, *how)
    key = "c-" + hashlib.sha256("\n".join([compiler(), version(), *flags, source]).encode()).hexdigest()
    kept = user_cache()
    image = kept.get(key) if kept is not None else None
    if image is not None:
        return image
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder, "source.c"), Path(folder, "output")
        file.write_text(source)
        command = [compiler(), *flags, str(file), "-o", str(output), "-lm"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise CompileError(f"the compiler of C failed: {ran.stderr.strip()[-500:]}")
        image = output.read_bytes()
    if kept is not None:
        kept.put(key, image)
    return image
