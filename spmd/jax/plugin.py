"""spmd as JAX's own client: JAX_PLATFORMS=spmd python train.py.

JAX finds jax_plugins/spmd, which calls `register` where the user names the platform.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax._src import xla_bridge

from spmd.pjrt.api import capsule

#: The name in JAX_PLATFORMS. The client itself says that its platform is "cpu", for which programs are lowered.
NAME = "spmd"
_bridge: Any = xla_bridge


def register() -> None:
    """Register the client with JAX; once."""
    if NAME in _bridge._backend_factories:
        return
    config: Any = jax.config
    is_cpu = "cpu" not in (config.jax_platforms or "").split(",")
    _bridge._nonexperimental_plugins.add(NAME)
    _bridge.register_plugin(NAME, c_api=capsule(), factory=partial(_client, is_cpu))


def _client(is_cpu: bool) -> Any:
    """The client; it is also what `jax.devices("cpu")` has, unless JAX_PLATFORMS names XLA's, too."""
    config: Any = jax.config
    count = config.jax_num_cpu_devices
    client = _bridge.make_pjrt_c_api_client(NAME, options={"num_devices": count} if count > 0 else None)
    if is_cpu:
        _bridge._backends["cpu"] = client
    return client
