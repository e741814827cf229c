"""Random numbers. Source: StableHLO specification, rng and rng_bit_generator."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, result
from spmd.dialects.forms import TYPED
from spmd.dialects.kinds import tensor_of_kinds

RNG = define(
    "stablehlo.rng",
    operands=[
        operand("a", tensor_of_kinds("i1", "signed", "unsigned", "float", rank=0)),
        operand("b", tensor_of_kinds("i1", "signed", "unsigned", "float", rank=0)),
        operand("shape", kinds.STATIC_DIMENSIONS),
    ],
    attributes=[attribute("rng_distribution", kinds.enum("stablehlo", "rng_distribution", "UNIFORM", "NORMAL"))],
    results=[result("result", tensor_of_kinds("i1", "signed", "unsigned", "float"))],
    assembly="$a `,` $b `,` $shape `,` `distribution` `=` $rng_distribution " + TYPED,
    traits=["reads_constants"],
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
    traits=["pure"],
)
