"""Lazily imported modules: SciPy's take longer to import than everything else together."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """A module imported at the first access of an attribute."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self.__name__), attribute)
        setattr(self, attribute, value)
        return value
