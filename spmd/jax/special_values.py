"""Detection of NaN and infinity in results, under jax_debug_nans and jax_debug_infs.

As with jax.jit, results are checked after a function has run: if one has such a value, a FloatingPointError names the
first primitive that returned one, whether or not it reached the result. Source: JAX's documentation, "jax_debug_nans".
JAX runs the function again op by op; here ops are watched during the run, since other processes would not run again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence

import numpy as np

from spmd.analysis.process_rows import UNSEEN
from spmd.compiler.schedule.watching import ScheduledUnit, UnitRun, Watch
from spmd.ir import Op
from spmd.jax.settings import JaxSettings
from spmd.support.arrays import Array, Results

#: Ops with NaNs and infinities written by the user or by JAX, such as the initial -inf of a maximum.
_WRITTEN = frozenset(("stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.reshape"))
#: Matches a location that begins with the name that JAX gives an op: transformations and, last, the primitive. Without
#: such a name it begins with the frames of the call, which have names as well.
_NAME = re.compile(r'"(?:[^"\\]|\\.)*?([A-Za-z_0-9]+)"\(')


class SpecialValues:
    """A watcher of a program that records the first op that returns a NaN or an infinity, per thread."""

    def __init__(self, settings: JaxSettings, watch: Watch | None = None) -> None:
        """Wrap `watch`, the user's own watcher, which runs the units."""
        self._settings = settings
        self._watch = watch
        self._local = threading.local()

    def __call__(self, unit: ScheduledUnit, run: UnitRun) -> Results:
        """Run `unit`; if it returns such a value, run it again, op by op, to find the op."""
        results: Results = run() if self._watch is None else self._watch(unit, run)
        if getattr(self._local, "found", None) is None and self._kind(_arrays(results)) is not None:
            makers = [op for op, values in run.op_by_op() if self._is_source(op, values)]
            if not makers and self._is_source(unit.ops[-1], results):
                makers = [unit.ops[-1]]
            self._local.found = next(iter(makers), None)
        return results

    def check(self, results: Iterable[Array], name: str) -> None:
        """Raise FloatingPointError if one of `results`, of the function `name`, has such a value."""
        found: Op | None = getattr(self._local, "found", None)
        self._local.found = None
        kind = self._kind(results)
        if kind is None:
            return
        if found is None:
            raise FloatingPointError(
                f"invalid value ({kind}) in the results of {name}, which none of its operations gave: "
                "it is in the arguments, or in constants"
            )
        raise FloatingPointError(f"{found.location}: invalid value ({kind}) encountered in {_primitive(found)}")

    def _is_source(self, op: Op, results: object) -> bool:
        is_maker = op.name not in _WRITTEN and UNSEEN not in op.discardable
        return is_maker and self._kind(_arrays(results)) is not None

    def _kind(self, arrays: Iterable[Array]) -> str | None:
        """Return "nan" or "inf", the first kind that is checked and found; None without one."""
        for array in arrays:
            if array.dtype.kind not in "fcV" or not array.size:
                continue
            numbers = array.astype(np.float32) if array.dtype.kind == "V" else array
            if self._settings.nans and np.isnan(numbers).any():
                return "nan"
            if self._settings.infs and np.isinf(numbers).any():
                return "inf"
        return None


def _arrays(results: object) -> Sequence[Array]:
    values = results if isinstance(results, tuple) else (results,)
    return [np.asarray(value) for value in values if isinstance(value, np.ndarray | np.generic)]


def _primitive(op: Op) -> str:
    """Return the name of the primitive that JAX lowered to `op`, or of the op itself."""
    named = _NAME.match(op.debug_location or "")
    return named[1] if named else op.name.partition(".")[2]
