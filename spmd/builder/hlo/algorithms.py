"""A dot's `algorithm=dot_bf16_bf16_f32_x3`: types that operands are rounded to and added in, the number of products.

`any_f8` is an operand's own type of 8 bits, or any type to add in. Source: XLA's PrecisionConfig.Algorithm.
"""

from __future__ import annotations

import re

from spmd.builder.shape import PrimitiveType
from spmd.dialects.structs import DotAlgorithmAttr
from spmd.types import F32, TF32, ElementType, Type

_TYPE = r"any_f8|any|tf32|b?f\d+"
_NAME = re.compile(rf"dot_({_TYPE})_({_TYPE})_({_TYPE})(?:_x(\d))?(_fast_accum)?")


def read_algorithm(name: str, lhs: Type, rhs: Type) -> DotAlgorithmAttr:
    """Return the algorithm of that name for operands of element types `lhs` and `rhs`; ValueError where there is
    none."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"algorithm={name} is no algorithm such as dot_bf16_bf16_f32_x3")
    types = _type(match[1], lhs), _type(match[2], rhs), _type(match[3], F32)
    return DotAlgorithmAttr(*types, 1, 1, int(match[4] or 1), match[5] is not None)


def _type(word: str, own: Type) -> Type:
    if word.startswith("any"):
        return own
    return TF32 if word == "tf32" else PrimitiveType.of(word).element_type


def algorithm_text(algorithm: DotAlgorithmAttr) -> str:
    """Return the name of an algorithm."""
    types = (algorithm.lhs_precision_type, algorithm.rhs_precision_type, algorithm.accumulation_type)
    words = ["any_f8" if isinstance(type, ElementType) and type.bits == 8 else str(type) for type in types]
    count = algorithm.num_primitive_operations
    fast = "_fast_accum" if algorithm.allow_imprecise_accumulation else ""
    return f"dot_{'_'.join(words)}{f'_x{count}' if count > 1 else ''}{fast}"
