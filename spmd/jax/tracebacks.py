"""Tracebacks without the frames of spmd and JAX.

JAX's own option applies: `JAX_TRACEBACK_FILTERING=off`, or `jax.config.update("jax_traceback_filtering", "off")`, shows
all frames. Source: JAX's documentation, "jax_traceback_filtering".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

import jax
import jaxlib
import numpy as np

import collectives
import partitioner
import spmd

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
#: Prefixes of files whose frames are hidden: packages, compiled programs, and NumPy's np.errstate.
_HIDDEN = (
    *(str(Path(str(package.__file__)).parent) + "/" for package in (spmd, collectives, partitioner, jax, jaxlib)),
    *("<spmd ", str(Path(str(np.__file__)).parent / "_core" / "_ufunc_config.py")),
)
_NOTE = "(frames of spmd and JAX are left out here: JAX_TRACEBACK_FILTERING=off shows them)"


def api_boundary(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function that users call: its errors show the user's frames only."""

    @functools.wraps(function)
    def bounded(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return bounded


def hide_frames(error: BaseException) -> None:
    """Remove the frames of spmd and JAX from the traceback of `error`, which is being handled, and of its causes.

    A bare `raise` afterwards keeps the remaining frames.
    """
    if jax.config.jax_traceback_filtering == "off":  # type: ignore[attr-defined]
        return
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    hidden = False
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen or type(current).__name__ == "UnfilteredStackTrace":
            continue  # JAX's own record of all frames, which some of its modes keep
        seen.add(id(current))
        pending += [current.__cause__, current.__context__]
        kept = _without_hidden(current.__traceback__)
        hidden = hidden or current.__traceback__ is not kept
        current.__traceback__ = kept
    is_noted = any("JAX_TRACEBACK_FILTERING" in note for note in getattr(error, "__notes__", ()))
    if hidden and not is_noted:
        error.add_note(_NOTE)


def _without_hidden(traceback: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    entry = traceback
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept: TracebackType | None = None
    is_same = True
    for entry in reversed(entries):
        if entry.tb_frame.f_code.co_filename.startswith(_HIDDEN):
            is_same = False
            continue
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return traceback if is_same else kept
