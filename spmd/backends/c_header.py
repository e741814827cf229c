"""The C header of an object file: the function, and the contents of its parameters."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.backends.native import ObjectFile
from spmd.types import TensorType

#: C types by NumPy kind and item size. Elements without a C type are declared as unsigned integers of their width.
_C_TYPES = {
    ("b", 1): "bool",
    **{("i", size): f"int{8 * size}_t" for size in (1, 2, 4, 8)},
    **{("u", size): f"uint{8 * size}_t" for size in (1, 2, 4, 8)},
    ("f", 4): "float",
    ("f", 8): "double",
    ("c", 8): "float",  # interleaved real and imaginary parts
    ("c", 16): "double",
}


def header(
    name: str,
    code: ObjectFile,
    arguments: Sequence[tuple[TensorType, str | None]],
    results: Sequence[TensorType],
    source: str,
) -> str:
    """Return the text of a header that declares the function `name` of `code`.

    `arguments`: type of each, and its name in the program, if any. `source` names what was compiled.
    """
    guard, size = f"{name.upper()}_H", f"{name.upper()}_SCRATCH_BYTES"
    return "\n".join(
        [
            f"/* {source}, compiled for {code.target}.",
            *(f"   {line}" for line in _linking(code)),
            "   Arrays are dense, the last dimension contiguous; no result overlaps another array. */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdbool.h>",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/* Bytes of the memory, aligned to 64, that a call works in. Calls at one time need one each. */",
            f"#define {size} {code.scratch}",
            "",
            f"void {name}(",
            *(f"    {parameter}" for parameter in parameters(arguments, results)),
            "    void *scratch);",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            f"#endif /* {guard} */",
            "",
        ]
    )


def parameters(arguments: Sequence[tuple[TensorType, str | None]], results: Sequence[TensorType]) -> list[str]:
    """Return the declarations of the parameters arg0, arg1, ..., result0, ..., each with its type in the program."""
    return [
        *(_parameter(f"const {_c_type(type)} *arg{k}", type, said) for k, (type, said) in enumerate(arguments)),
        *(_parameter(f"{_c_type(type)} *result{k}", type, None) for k, type in enumerate(results)),
    ]


def _parameter(declaration: str, type: TensorType, said: str | None) -> str:
    note = f"{type} {said}" if said else str(type)
    return f"{declaration}, /* {note.replace('*/', '* /')} */"


def _linking(code: ObjectFile) -> list[str]:
    lines = [f"Link with the custom call's target void {name}(void* out, void** in)." for name in code.c_targets]
    if not code.needs:
        return [*lines, "Link with the mathematical library (-lm)."]
    routines = ", ".join(code.needs)
    text = f"Link with BLAS and LAPACK of 32-bit integers, for {routines}, and the mathematical library (-lm)."
    return [*lines, text]


def _c_type(type: TensorType) -> str:
    dtype = type.dtype
    return _C_TYPES.get((dtype.kind, dtype.itemsize), f"uint{8 * dtype.itemsize}_t")
