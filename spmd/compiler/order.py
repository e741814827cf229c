"""Steps change places so that a result can take over the memory of an operand.

`maximum(x, 0)` may be written over x where nobody needs x any more. A gradient does: `compare x > 0` follows, as JAX
writes a relu. Run first, the comparison reads the same x, and the maximum is the last to need it.
"""

from __future__ import annotations

from spmd.compiler.steps import Step
from spmd.dialects.core import is_pure
from spmd.ir import Value
from spmd.types import TensorType

#: A step is moved up past so many others at most: what it makes is held for longer.
_FAR = 8


def read_first(steps: list[Step], results: list[Value]) -> list[Step]:
    """The same steps; one that only reads a value comes before the one that could be written over it."""
    users: dict[Value, list[int]] = {}
    made_at: dict[Value, int] = {}
    for index, step in enumerate(steps):
        made_at.update((value, index) for value in step.outputs)
        for value in dict.fromkeys(step.inputs):
            users.setdefault(value, []).append(index)
    kept = set(results)
    before: dict[int, list[Step]] = {}
    moved: set[int] = set()
    for index, step in enumerate(steps):
        for value in _overwritable(step):
            later = [user for user in users[value] if user > index and user not in moved]
            if value in kept or value not in made_at or len(later) != 1 or later[0] > index + _FAR:
                continue
            reader = steps[later[0]]
            if _only_reads(reader, value) and all(made_at.get(other, -1) < index for other in reader.inputs):
                before.setdefault(index, []).append(reader)
                moved.add(later[0])
    ordered: list[Step] = []
    for index, step in enumerate(steps):
        if index not in moved:
            ordered += [*before.get(index, ()), step]
    return ordered


def _overwritable(step: Step) -> list[Value]:
    """Operands whose memory the result could take over, were it not for others that need them."""
    if not step.kernel.pointwise or len(step.outputs) != 1:
        return []
    wanted = step.outputs[0].type
    return [step.inputs[k] for k in step.kernel.reuses if step.inputs[k].type == wanted]


def _only_reads(step: Step, value: Value) -> bool:
    """Whether `step` has no effect, and no result that could take over the memory of `value` itself."""
    if step.kernel.needs_process or step.kernel.aliases or not is_pure(step.op):
        return False
    wanted = value.type
    assert isinstance(wanted, TensorType)
    return all(
        isinstance(made.type, TensorType) and made.type.is_static and made.type.nbytes < wanted.nbytes
        for made in step.outputs
    )
