"""Decompositions and transforms: processes are one more batch dimension."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.compiler.stack.core import Stacker, Tree, rule
from spmd.ir import Op


@rule("stablehlo.cholesky", "stablehlo.triangular_solve", "stablehlo.fft")
def batched(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return stacker.lifted(op, [stacker.stack(stacker.leaf(value)) for value in op.operands])
