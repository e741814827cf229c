"""Random numbers. Source: StableHLO specification, rng and rng_bit_generator."""

from __future__ import annotations

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import element_of, equal_elements, listed, same_types
from spmd.dialects.core import Trait, attribute, define, operand, result
from spmd.dialects.dynamism import shaped_by
from spmd.dialects.forms import TYPED
from spmd.dialects.shapes import tensor
from spmd.dialects.type_sets import tensor_of_kinds
from spmd.ir import Op
from spmd.types import I64, UI64, ElementType

RNG = define(
    "stablehlo.rng",
    operands=[
        operand("a", tensor_of_kinds("i1", "signed", "unsigned", "float", rank=0)),
        operand("b", tensor_of_kinds("i1", "signed", "unsigned", "float", rank=0)),
        operand("shape", type_sets.STATIC_DIMENSIONS),
    ],
    attributes=[attribute("rng_distribution", kinds.enum("stablehlo", "rng_distribution", "UNIFORM", "NORMAL"))],
    results=[result("result", tensor_of_kinds("i1", "signed", "unsigned", "float"))],
    assembly="$a `,` $b `,` $shape `,` `distribution` `=` $rng_distribution " + TYPED,
    traits=[Trait.READS_CONTEXT],
)

RNG.constraint("C1", "element_type(a) = element_type(b) = element_type(result)")(
    lambda op: equal_elements(*op.operand_types[:2], *op.result_types)
)


@RNG.constraint("I3", "shape is a 1-dimensional tensor of si64", customary=True)
def _(op: Op) -> str | None:
    shape = op.operands[2].tensor
    return None if shape.element_type is I64 else str(shape)


@RNG.constraint("C2", "a must be floating-point for NORMAL")
def _(op: Op) -> str | None:
    element = element_of(op.operands[0].type)
    assert isinstance(element, ElementType)
    return str(element) if op["rng_distribution"] == "NORMAL" and not element.is_float else None


RNG.infers("C3", "shape(result) = shape")(
    lambda op: [tensor(shaped_by(op.operands[2]), op.operands[0].tensor.element_type)]
)

RNG_BIT_GENERATOR = define(
    "stablehlo.rng_bit_generator",
    operands=[operand("initial_state", tensor_of_kinds("signed", "unsigned", "float"), label="I2")],
    attributes=[attribute("rng_algorithm", kinds.enum("stablehlo", "rng_algorithm", "DEFAULT", "THREE_FRY", "PHILOX"))],
    results=[
        result("output_state", tensor_of_kinds("signed", "unsigned", "float")),
        result("output", tensor_of_kinds("signed", "unsigned", "float", static=True)),
    ],
    assembly="$initial_state `,` `algorithm` `=` $rng_algorithm " + TYPED,
    traits=[Trait.PURE],
)


@RNG_BIT_GENERATOR.constraint("I2", "initial_state is a 1-dimensional tensor of ui64", customary=True)
def _(op: Op) -> str | None:
    state = op.operands[0].tensor
    return None if state.rank == 1 and state.element_type is UI64 else str(state)


@RNG_BIT_GENERATOR.constraint("C1", "type(initial_state) = type(output_state)", on_results=True)
def _(op: Op) -> str | None:
    return same_types(op.operands[0].type, op.results[0].type)


_STATE_SIZES = {"DEFAULT": (), "THREE_FRY": (2,), "PHILOX": (2, 3)}


@RNG_BIT_GENERATOR.constraint("C2", "size(initial_state) is 2 for THREE_FRY and 2 or 3 for PHILOX", meaningless=True)
def _(op: Op) -> str | None:
    state, allowed = op.operands[0].tensor, _STATE_SIZES[op["rng_algorithm"]]
    element = state.element_type
    counted = state.is_static and state.rank == 1 and isinstance(element, ElementType) and element.bits == 64
    return None if not allowed or not counted or state.size in allowed else listed((state.size, op["rng_algorithm"]))
