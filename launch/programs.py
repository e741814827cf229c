"""Loading of the program that a command is given: a file, and a function in it."""

from typing import TYPE_CHECKING

from launch import progress

if TYPE_CHECKING:
    from spmd.ir import Module


def load(path: str, function: str) -> "Module":
    """Return the module in the file ``path``; UsageError unless ``function`` has a body there."""
    import spmd

    with progress.doing(f"reading {path}"):
        module = spmd.load(path)
    names = [each.symbol for each in module.functions if not each.is_declaration]
    if not module.functions:
        raise spmd.UsageError(f"{path} has no function; a program needs a func.func @{function}")
    if function not in names:
        known = ", ".join("@" + name for name in names) or "none"
        raise spmd.UsageError(f"{path} has no function @{function}; its functions: {known}")
    return module
