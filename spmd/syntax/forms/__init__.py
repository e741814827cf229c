"""Directives with a form of their own, `custom<Name>` in an op's assembly, by what they are about."""

from __future__ import annotations

import importlib
import pkgutil

from spmd import syntax


def load() -> None:
    """Files every directive and attribute form: those of this package, and the sdy modules beside it."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(syntax.__path__):
        if module.name.startswith("sdy"):
            importlib.import_module(f"{syntax.__name__}.{module.name}")
