"""A transposed product becomes the product of the exchanged operands: same values, and no transpose left."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.compiler.exchange import PRODUCT, TRANSPOSE, exchange_operands


def text(batch: int, left: int, right: int, permutation: list[int], extra_use: bool = False) -> str:
    """dot_general with `batch`, `left` and `right` dimensions of each kind and one contracted, transposed."""
    sizes_b, sizes_l, sizes_r = [2, 3][:batch], [4, 5][:left], [6, 7][:right]
    lhs, rhs = [*sizes_b, 8, *sizes_l], [*sizes_b, *sizes_r, 8]
    product = [*sizes_b, *sizes_l, *sizes_r]
    result = [product[axis] for axis in permutation]

    def type(shape: list[int]) -> str:
        return f"tensor<{''.join(f'{size}x' for size in shape)}f32>"

    axes = list(range(batch))
    returned = f"%1, %0 : {type(result)}, {type(product)}" if extra_use else f"%1 : {type(result)}"
    results = f"({type(result)}, {type(product)})" if extra_use else type(result)
    return f"""
func.func @main(%a: {type(lhs)}, %b: {type(rhs)}) -> {results} {{
  %0 = stablehlo.dot_general %a, %b, batching_dims = {axes} x {axes},
      contracting_dims = [{batch}] x [{len(rhs) - 1}], precision = [DEFAULT, HIGHEST]
      : ({type(lhs)}, {type(rhs)}) -> {type(product)}
  %1 = stablehlo.transpose %0, dims = {permutation} : ({type(product)}) -> {type(result)}
  return {returned}
}}"""


def names(module: spmd.Module) -> list[str]:
    block = module.function("main").body
    exchange_operands(block)
    return [op.name for op in block.ops]


@settings(max_examples=30, deadline=None)
@given(data=st.data(), batch=st.integers(0, 2), left=st.integers(0, 2), right=st.integers(0, 2))
def test_values_are_those_of_the_transpose(data: st.DataObject, batch: int, left: int, right: int) -> None:
    rank = batch + left + right
    swap = [*range(batch), *range(batch + left, rank), *range(batch, batch + left)]
    permutation = data.draw(st.one_of(st.just(swap), st.permutations(range(rank))))
    source = text(batch, left, right, permutation)
    module = spmd.parse(source)
    shapes = [value.tensor.static_shape for value in module.function("main").arguments]
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(np.float32) for shape in shapes)
    l_axes, r_axes = "wxyz"[:left], "stuv"[:right]
    letters = "bc"[:batch]
    product = np.einsum(f"{letters}k{l_axes},{letters}{r_axes}k->{letters}{l_axes}{r_axes}", a, b)
    (result,) = spmd.compile(module)(a, b)
    np.testing.assert_allclose(result, product.transpose(permutation), rtol=1e-4, atol=1e-5)
    assert (TRANSPOSE in names(spmd.parse(source))) == (list(permutation) != swap)


def test_precision_goes_with_its_operand() -> None:
    module = spmd.parse(text(0, 1, 1, [1, 0]))
    block = module.function("main").body
    exchange_operands(block)
    product = next(op for op in block.ops if op.name == PRODUCT)
    assert list(map(str, product["precision_config"])) == ["HIGHEST", "DEFAULT"]
    assert product.operands == tuple(module.function("main").arguments[::-1])


@pytest.mark.parametrize("extra_use", [False, True])
def test_a_product_that_others_use_stays(extra_use: bool) -> None:
    assert (TRANSPOSE in names(spmd.parse(text(0, 1, 1, [1, 0], extra_use)))) == extra_use
