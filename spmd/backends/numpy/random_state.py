"""The state of XLA's own random number expansion: rng-get-and-update-state in HLO text.

Source: XLA's CPU runtime, rng_state_lib: 128 bits with a fixed start, incremented by `delta` at each call.
"""

from __future__ import annotations

import numpy as np

from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel
from spmd.dialects.custom_call import RNG_STATE
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op
from spmd.runtime.process import Process
from spmd.support.arrays import Array

_FIRST = 0x7012395
_WORD = 2**64


@target(RNG_STATE)
def rng_state(op: Op, context: Context) -> Kernel:
    """Return the state before the update; each process of an executable has its own."""
    try:
        delta = int(op["backend_config"])
    except ValueError:
        text = f"backend_config must be an integer, the increment of the state, got {op['backend_config']!r}"
        raise CompileError(Diagnostic(op.location, text, op.name)) from None
    states: dict[int, int] = {}

    def call(process: Process) -> Array:
        state = states.get(process.rank, _FIRST)
        states[process.rank] = (state + delta) % _WORD**2
        return np.array([state % _WORD, state // _WORD], np.uint64)

    return Kernel(call, needs_process=True)
