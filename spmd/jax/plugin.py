"""spmd as JAX's own client: JAX_PLATFORMS=spmd python train.py.

JAX finds jax_plugins/spmd, which calls `register` if the user names the platform.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
from jax._src import xla_bridge
from jaxlib import xla_client

from spmd.pjrt import ffi
from spmd.pjrt.api import capsule
from spmd.pjrt.records import immortal

#: The name in JAX_PLATFORMS. The client reports its platform as "cpu", for which programs are lowered.
NAME = "spmd"
_bridge: Any = xla_bridge
_xla: Any = xla_client


def register() -> None:
    """Register the client with JAX; once."""
    if NAME in _bridge._backend_factories:
        return
    config: Any = jax.config
    ffi.registered = _handlers
    is_cpu = "cpu" not in (config.jax_platforms or "").split(",")
    _bridge._nonexperimental_plugins.add(NAME)
    _bridge.register_plugin(NAME, c_api=capsule(), factory=partial(_client, is_cpu))


def _client(is_cpu: bool) -> Any:
    """Return the client; it also serves `jax.devices("cpu")`, unless JAX_PLATFORMS names XLA's as well."""
    config: Any = jax.config
    # As XLA's CPU client does: handlers registered so far are pending until there is a client.
    _xla.register_custom_call_handler("cpu", _xla._xla.register_custom_call_target)
    count = config.jax_num_cpu_devices
    # jaxlib's destructor joins a pool of threads, one of which now and then never wakes: the process did not end.
    client = immortal(_bridge.make_pjrt_c_api_client(NAME, options={"num_devices": count} if count > 0 else None))
    if is_cpu:
        _bridge._backends["cpu"] = client
    return client


def _handlers() -> Mapping[str, ffi.Handlers]:
    """Return the addresses of the custom call handlers that jax.ffi has for the CPU."""
    targets: Mapping[str, Any] = _xla.custom_call_targets("Host")
    return {
        name: {stage: _address(of_stage) for stage, of_stage in found.items()}
        if isinstance(found, dict)
        else _address(found)
        for name, found in targets.items()
    }


def _address(capsule: Any) -> int:
    """Return the pointer of a capsule of any name."""
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer(capsule, name(capsule)) or 0
    return address
