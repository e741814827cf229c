"""Directives with a form of their own, `custom<Name>` in an op's assembly, by what they are about.

Importing this package files all of them.
"""

from spmd.syntax.forms import (
    contraction,
    convolution,
    fields,
    program,
    scan,
    sdy_attributes,
    sdy_ops,
    shape,
    structs,
    types,
)

__all__ = [
    "contraction", "convolution", "fields", "program", "scan", "sdy_attributes", "sdy_ops", "shape", "structs", "types",
]  # fmt: skip
