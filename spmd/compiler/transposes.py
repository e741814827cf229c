"""Which transposes are views, and which move memory.

Products, reductions and convolutions take an operand in any order of memory, and so does another transpose: they get
a view. For anything else the elements of a large array are brought into their new order once.
"""

from __future__ import annotations

from spmd.backends.numpy.core import Kernel
from spmd.backends.numpy.transposition import transposer
from spmd.compiler.steps import Step
from spmd.ir import Value

_TRANSPOSE = "stablehlo.transpose"
#: Ops that read any order of memory as well as another.
_INDIFFERENT = {"stablehlo.dot_general", "stablehlo.reduce", "stablehlo.convolution", _TRANSPOSE}
#: Elements up to which a view is read quickly enough from the caches.
_SMALL = 1 << 15


def move_transposed(steps: list[Step], results: list[Value]) -> list[Step]:
    """The same steps; transposes whose results somebody walks over make new arrays."""
    walked = set(results)
    for step in steps:
        if step.op.name not in _INDIFFERENT:
            walked.update(step.inputs)
    for step in steps:
        if step.op.name == _TRANSPOSE and len(step.inputs) == 1:
            type = step.inputs[0].tensor
            if type.is_static and type.size > _SMALL and step.outputs[0] in walked:
                step.kernel = Kernel(transposer(type.static_shape, step.op["permutation"], type.dtype))
    return steps
