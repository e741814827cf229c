"""HTML representations of modules, executables, shardings and predictions in notebooks."""

from __future__ import annotations

import html

from partitioner.sharding import ShardedType, Sharding
from spmd.errors import SpmdError
from spmd.ir import Module
from spmd.predict.prediction import Prediction
from spmd.predict.report import page
from spmd.runtime.executable import Executable
from spmd.types import F32, TensorType
from spmd.viewing import blocks
from spmd.viewing.view import view


def picture(value: object) -> str:
    """Return HTML that shows `value`; its text if it has no picture."""
    match value:
        case Module() | Executable():
            try:
                return view(value)._repr_html_()
            except SpmdError as error:
                return _text(f"{value!r}\n{error}")
        case ShardedType():
            processes = 1 if value.sharding is None else value.sharding.mesh.size
            return blocks.table(value, processes) if _is_static(value) else _text(str(value))
        case Sharding():
            # A sharding has no sizes: show one element per block.
            counts = tuple(value.count(dimension) for dimension in range(value.rank))
            return blocks.table(ShardedType(TensorType(counts, F32), value), value.mesh.size)
        case Prediction():
            return _text(page(value, "a step"))
    return _text(repr(value))


def _is_static(layout: ShardedType) -> bool:
    return isinstance(layout.type, TensorType) and layout.type.is_static


def _text(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"
