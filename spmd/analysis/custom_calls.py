"""Custom calls: their attributes and targets."""

from __future__ import annotations

from collections.abc import Callable

from spmd.dialects.custom_call_targets import HINTS as TYPED_HINTS
from spmd.dialects.custom_call_targets import PARTS, REGISTERED
from spmd.ir import AttributeValue, Module, Op
from spmd.ir import attributes as a

#: Targets that return their operands: hints on placement.
HINTS = frozenset({*TYPED_HINTS, *PARTS, "Pin", "Unpin"})

#: The target of JAX's pure_callback, io_callback and debug callbacks; running programs replace it by their own.
PYTHON_CALLBACK = "xla_ffi_python_cpu_callback"

_BATCHES: set[str] = set(HINTS)
#: Targets that are functions of C.
_OF_C: set[str] = set()


def declare_registered(target: str, *, takes_batch: bool, is_of_c: bool = False) -> None:
    """Declare that `target` runs user code.

    `takes_batch`: operands and results may all have one extra leading dimension. `is_of_c`: its signature is
    `void target(void* out, void** in)`.
    """
    REGISTERED.add(target)
    (_BATCHES.add if takes_batch else _BATCHES.discard)(target)
    (_OF_C.add if is_of_c else _OF_C.discard)(target)


def declare_unregistered(target: str) -> None:
    """Says that no users' code runs for `target` any more."""
    for targets in (REGISTERED, _BATCHES, _OF_C):
        targets.discard(target)


def is_of_c(target: str) -> bool:
    """Return whether the user's implementation of `target` is a C function."""
    return target in _OF_C


def is_registered(target: str) -> bool:
    """Return whether user code runs for `target`; it overrides a built-in of the same name."""
    return target in REGISTERED


def takes_batch(target: str) -> bool:
    """Return whether one call of `target` may process a batch: operands and results with an extra leading axis."""
    return target in _BATCHES


def retarget_callbacks(module: Module, target_of: Callable[[int], str]) -> None:
    """Give each Python callback its own target, by the number that JAX assigns to it in the program."""
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

    The dictionary of a typed call, which frontends store as `mhlo.backend_config`, replaces `backend_config`.
    """
    plain = {name: plain_value(value) for name, value in op.attributes.items()}
    plain.update((name, plain_value(value)) for name, value in op.discardable.items())
    typed = plain.pop("mhlo.backend_config", None)
    if typed is not None:
        plain["backend_config"] = typed
    return plain


def plain_value(value: object) -> AttributeValue:
    """Return an attribute as the nearest Python value."""
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
