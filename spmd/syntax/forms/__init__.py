"""Forms that need code: directives (`custom<Name>` in an op's assembly), attributes and types, by subject.

Importing this package registers all of them.
"""

from spmd.syntax.forms import (
    contraction,
    convolution,
    fields,
    program,
    quantized,
    scan,
    sdy_attributes,
    sdy_ops,
    shape,
    structs,
    types,
)

__all__ = [
    "contraction", "convolution", "fields", "program", "quantized", "scan", "sdy_attributes", "sdy_ops", "shape",
    "structs", "types",
]  # fmt: skip
