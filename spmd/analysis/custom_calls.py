"""What is known of custom calls: their attributes, and their targets."""

from __future__ import annotations

from collections.abc import Callable

from spmd.dialects.custom_call_targets import HINTS as TYPED_HINTS
from spmd.dialects.custom_call_targets import PARTS, REGISTERED
from spmd.ir import AttributeValue, Module, Op
from spmd.ir import attributes as a

#: Targets that give their operands back: hints on where values lie.
HINTS = frozenset({*TYPED_HINTS, *PARTS, "Pin", "Unpin"})

#: What JAX's pure_callback, io_callback and debug callbacks lower to; who runs them gives them other targets.
PYTHON_CALLBACK = "xla_ffi_python_cpu_callback"

_BATCHES: set[str] = set(HINTS)
#: Targets that are functions of C.
_OF_C: set[str] = set()


def declare_registered(target: str, *, takes_batch: bool, is_of_c: bool = False) -> None:
    """Say that users' code runs for `target` from now on.

    `takes_batch`: it takes operands that all have one more leading dimension, as its results then have. `is_of_c`: it
    is `void target(void* out, void** in)`.
    """
    REGISTERED.add(target)
    (_BATCHES.add if takes_batch else _BATCHES.discard)(target)
    (_OF_C.add if is_of_c else _OF_C.discard)(target)


def declare_unregistered(target: str) -> None:
    """Says that no users' code runs for `target` any more."""
    for targets in (REGISTERED, _BATCHES, _OF_C):
        targets.discard(target)


def is_of_c(target: str) -> bool:
    """Return whether the code that a user registered for `target` is a function of C."""
    return target in _OF_C


def is_registered(target: str) -> bool:
    """Return whether users' code runs for `target`, whatever is built in under its name."""
    return target in REGISTERED


def takes_batch(target: str) -> bool:
    """Return whether one call of `target` may do the work of several: operands and results have a leading axis more."""
    return target in _BATCHES


def retarget_callbacks(module: Module, target_of: Callable[[int], str]) -> None:
    """Give each callback into Python the target that is its own; JAX numbers those of a program."""
    for op in module.walk():
        if op.name != "stablehlo.custom_call" or op["call_target_name"] != PYTHON_CALLBACK:
            continue
        config = op.discardable["mhlo.backend_config"]
        assert isinstance(config, a.DictAttr)
        number = config.entries["index"].value  # type: ignore[attr-defined]
        op.attributes = {**op.attributes, "call_target_name": target_of(number)}


# --- attributes as plain Python --------------------------------------------------------------------------------------


def call_attributes(op: Op) -> dict[str, AttributeValue]:
    """Return all attributes of a custom call as plain Python values by name.

    `mhlo.backend_config`, in which frontends put the dictionary of a typed call, takes the place of `backend_config`.
    """
    plain = {name: plain_value(value) for name, value in op.attributes.items()}
    plain.update((name, plain_value(value)) for name, value in op.discardable.items())
    typed = plain.pop("mhlo.backend_config", None)
    if typed is not None:
        plain["backend_config"] = typed
    return plain


def plain_value(value: object) -> AttributeValue:
    """Return an attribute as the Python value nearest to it."""
    match value:
        case a.UnitAttr():
            return True
        case a.BoolAttr() | a.IntegerAttr() | a.FloatAttr() | a.StringAttr() | a.EnumAttr():
            return value.value
        case a.TypeAttr():
            return value.type
        case a.SymbolRefAttr():
            return "::".join(value.path)
        case a.DenseAttr():
            return value.array
        case a.DenseArrayAttr():
            return value.values
        case a.ArrayAttr():
            return tuple(plain_value(element) for element in value.elements)
        case a.DictAttr():
            return {name: plain_value(entry) for name, entry in value.entries.items()}
        case a.OpaqueAttr():
            return value.text
        case tuple():
            return tuple(plain_value(entry) for entry in value)
    return value
