"""Generators of random bits in terms of integer ops: the bits and states of the kernel."""

import numpy as np
import pytest

import spmd
from spmd.compiler.transforms.random_expansion import GENERATOR, expand_generators

#: States whose counters overflow among those that are used, and one whose upper half is the key.
STATES = [[7, 2**64 - 3, 5], [2**64 - 1, 2**64 - 2, 2**64 - 1], [3, 0], [2**63 + 1, 2**64 - 4]]


def generator(words: int, output: str) -> str:
    state = f"tensor<{words}xui64>"
    return f"""func.func @main(%s: {state}) -> ({state}, {output}) {{
      %n, %b = stablehlo.rng_bit_generator %s, algorithm = PHILOX : ({state}) -> ({state}, {output})
      return %n, %b : {state}, {output}
    }}"""


@pytest.mark.parametrize("output", ["tensor<ui32>", "tensor<3x7xui32>", "tensor<2x37xi64>", "tensor<130xi32>"])
def test_the_bits_of_the_kernel(output: str) -> None:
    for state in STATES:
        module = spmd.parse(generator(len(state), output))
        native, plain = (
            spmd.compile(module, backends=each)(np.array(state, np.uint64)) for each in (("llvm",), ("numpy",))
        )
        for mine, expected in zip(native, plain, strict=True):
            np.testing.assert_array_equal(mine, expected)


@pytest.mark.parametrize(("output", "is_kept"), [("tensor<5xui32>", False), ("tensor<5xui8>", True)])
def test_only_words_are_expanded(output: str, is_kept: bool) -> None:
    (function,) = spmd.parse(generator(2, output)).functions
    expand_generators(function.body)
    assert any(op.name == GENERATOR for op in function.body.ops) == is_kept
