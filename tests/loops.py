"""Counted loops as text."""

from __future__ import annotations


def counted_loop(carried: str, body: str, turns: int | str = "%n", start: str = "%x") -> str:
    """The text of `%r:2`, a loop that counts `%i` up to `turns` (a number, or a value's name) and carries `%v`.

    `%v` is of type `carried`, and `start` at first; `body` makes `%u`, which is carried on. The body's first line is
    the ninth of the text, the tenth where `turns` is a number.
    """
    bound = "" if isinstance(turns, str) else f"\n      %n = stablehlo.constant dense<{turns}> : tensor<i32>"
    most = turns if isinstance(turns, str) else "%n"
    return f"""  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %i0, %v = {start}) : tensor<i32>, {carried}
    cond {{{bound}
      %c = stablehlo.compare LT, %i, {most} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      {body}
      stablehlo.return %j, %u : tensor<i32>, {carried}
    }}"""
