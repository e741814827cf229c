"""Integer expressions computed on arrays give what the NumPy kernels give."""

import numpy as np
import pytest

import spmd
from spmd.analysis.varying.facts import known_results

ENDS = {
    "i8": [-128, -1, 0, 1, 5, 127],
    "ui8": [0, 1, 5, 127, 128, 255],
    "i32": [-(2**31), -7, -1, 0, 3, 2**31 - 1],
    "ui32": [0, 1, 7, 2**31, 2**32 - 1, 12],
    "i64": [-(2**63), -1, 0, 1, 9, 2**63 - 1],
}
BINARY = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor")


@pytest.mark.parametrize("element", ENDS)
def test_known_numbers_are_what_runs(element: str) -> None:
    """All binary ops and comparisons in one program, on both ends of the type, zero among the divisors."""
    ops = [f"%{name} = stablehlo.{name} %x, %y : tensor<36x{element}>" for name in BINARY]
    ops += [
        f"%{order} = stablehlo.compare {order}, %x, %y : (tensor<36x{element}>, tensor<36x{element}>) -> tensor<36xi1>"
        for order in ("LT", "LE", "EQ", "NE", "GT", "GE")
    ]
    ops.append(f"%s = stablehlo.select %LT, %x, %y : tensor<36xi1>, tensor<36x{element}>")
    names = [*BINARY, "LT", "LE", "EQ", "NE", "GT", "GE", "s"]
    types = ", ".join(f"tensor<36x{'i1' if name.isupper() else element}>" for name in names)
    returned = ", ".join(f"%{name}" for name in names)
    text = f"func.func @main(%x: tensor<36x{element}>, %y: tensor<36x{element}>) -> ({types}) {{\n" + "\n".join(ops)
    module = spmd.parse(text + f"\nreturn {returned} : {types}\n}}")
    dtype = module.functions[0].arguments[0].tensor.dtype
    x, y = (side.reshape(-1).astype(dtype) for side in np.meshgrid(ENDS[element], ENDS[element]))
    expected = spmd.compile(module, backends=("numpy",))(x, y)
    known = {value: array[np.newaxis] for value, array in zip(module.functions[0].arguments, (x, y), strict=True)}
    for op, result in zip(module.functions[0].body.ops, expected, strict=False):
        found = known_results(op, [known.get(operand) for operand in op.operands])
        assert found is not None, op.name
        known[op.results[0]] = found
        assert np.array_equal(found[0], result), op.name
