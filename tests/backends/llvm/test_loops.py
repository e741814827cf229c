"""What a loop carries is written over only where nobody reads it any more."""

import numpy as np
import pytest

import spmd


@pytest.mark.parametrize("shape", [(8, 3), (1, 8, 3), (1, 8, 1, 3)])
def test_rows_turn_round_in_a_loop(shape: tuple[int, ...]) -> None:
    """The parts of a concatenation read what the loop carries, seen through a reshape or not."""
    axis = shape.index(8)
    kind = lambda rows: f"tensor<{'x'.join(str(rows if k == axis else n) for k, n in enumerate(shape))}xf32>"  # noqa: E731
    cut = lambda a, b: ", ".join(f"{a}:{b}" if k == axis else f"0:{n}" for k, n in enumerate(shape))  # noqa: E731
    text = f"""func.func @main(%x: tensor<8x3xf32>) -> tensor<8x3xf32> {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %n = stablehlo.constant dense<1001> : tensor<i32>
      %o = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %z, %a = %x) : tensor<i32>, tensor<8x3xf32>
      cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %k = stablehlo.add %i, %o : tensor<i32>
        %w = stablehlo.reshape %a : (tensor<8x3xf32>) -> {kind(8)}
        %p = stablehlo.slice %w [{cut(7, 8)}] : ({kind(8)}) -> {kind(1)}
        %q = stablehlo.slice %w [{cut(0, 7)}] : ({kind(8)}) -> {kind(7)}
        %h = stablehlo.concatenate %p, %q, dim = {axis} : ({kind(1)}, {kind(7)}) -> {kind(8)}
        %b = stablehlo.reshape %h : ({kind(8)}) -> tensor<8x3xf32>
        stablehlo.return %k, %b : tensor<i32>, tensor<8x3xf32>
      }}
      return %r#1 : tensor<8x3xf32>
    }}"""
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    (result,) = spmd.compile(spmd.parse(text))(x)
    assert result.tolist() == np.roll(x, 1001 % 8, axis=0).tolist()
