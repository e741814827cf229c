"""Lowering of traced functions to StableHLO for processes without JAX devices."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from jax.extend.core import Jaxpr

from spmd.jax.equations import equations

try:  # private to JAX: without them JAX rejects what `lower_traced` describes
    from jax._src import debugging, dispatch, effects
except ImportError:  # pragma: no cover
    debugging = dispatch = effects = None  # type: ignore[assignment]

#: Primitives that JAX can lower without devices, although it requires them.
_CALLBACKS = frozenset(("pure_callback", "io_callback"))
_NEEDS_DEVICES = "AbstractMesh cannot be used when jaxpr contains primitives that require devices"
_patching = threading.RLock()


def lower_traced(traced: Any) -> Any:
    """Return the `jax.stages.Lowered` of a `jax.stages.Traced`, for the CPU.

    A callback in the global view is called once, by one process. JAX requires devices for it, which abstract meshes
    lack, and rejects ordered debugging callbacks on several devices; both are lowered here.
    """
    with _patched(effects, "shardable_ordered_effects", _with_debugging):
        try:
            return traced.lower(lowering_platforms=("cpu",))
        except ValueError as error:
            if not str(error).startswith(_NEEDS_DEVICES):
                raise
        with _patched(dispatch, "jaxpr_has_prim_requiring_devices", _but_for_callbacks):
            return traced.lower(lowering_platforms=("cpu",))


def _with_debugging(shardable: Any) -> Any:
    """Return the effects that JAX allows on several devices, and those of ordered debugging callbacks."""
    allowed: Any = effects.EffectTypeSet()  # type: ignore[no-untyped-call]
    for kind in (*shardable._effect_types, debugging.OrderedDebugEffect):
        allowed.add_type(kind)
    return allowed


def _but_for_callbacks(_: Callable[[Jaxpr], bool]) -> Callable[[Jaxpr], bool]:
    """Return JAX's test for primitives that need devices, excluding callbacks."""

    def needs(jaxpr: Jaxpr) -> bool:
        primitives = {equation.primitive for equation in equations(jaxpr)}
        return any(
            primitive in dispatch.prim_requires_devices_during_lowering and primitive.name not in _CALLBACKS
            for primitive in primitives
        )

    return needs


@contextlib.contextmanager
def _patched(module: Any, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Replace `module.name` by `change` of it within the context, if this version of JAX has that name."""
    with _patching:
        try:
            before = getattr(module, name)
            changed = change(before)
        except AttributeError:
            yield
            return
        setattr(module, name, changed)
        try:
            yield
        finally:
            setattr(module, name, before)
