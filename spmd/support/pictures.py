"""HTML representations for notebooks, drawn by a higher layer that is imported on first use."""

from __future__ import annotations

from importlib import import_module

_DRAWER = "spmd.viewing.notebook"


def picture_of(value: object) -> str:
    """HTML that shows `value`: a module, an executable, a sharding or a prediction."""
    text = import_module(_DRAWER).picture(value)
    assert isinstance(text, str)
    return text
