"""The program that a command is given: a file, and the function in it."""

from typing import TYPE_CHECKING

from launch import progress

if TYPE_CHECKING:
    from spmd.ir import Module


def load(path: str, function: str) -> "Module":
    """The module in the file ``path``. UsageError unless it has a body for ``function``."""
    import spmd

    with progress.doing(f"reading {path}"):
        module = spmd.load(path)
    names = [each.symbol for each in module.functions if not each.is_declaration]
    if not module.functions:
        raise spmd.UsageError(f"{path} has no function: a program has a func.func @{function}, an empty file has none")
    if function not in names:
        known = ", ".join("@" + name for name in names) or "none"
        raise spmd.UsageError(f"{path} has no function @{function}; its functions: {known}")
    return module
