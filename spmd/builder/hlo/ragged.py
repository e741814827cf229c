"""HLO's ragged-all-to-all: the custom_call of StableHLO that stands for it."""

from __future__ import annotations

import numpy as np

from spmd.builder import ops
from spmd.builder.hlo.groups import parse_groups
from spmd.builder.hlo.parser import Call, instruction
from spmd.builder.xla_op import XlaOp


@instruction("ragged-all-to-all")
def _ragged_all_to_all(call: Call) -> XlaOp:
    groups, channel = parse_groups(call.attribute("replica_groups", "{}")), call.channel()
    rows = np.array(groups, np.int64).reshape(len(groups), -1 if groups else 0)
    config: dict[str, object] = {"replica_groups": rows}
    if channel is not None:
        config["channel_id"] = channel
    return ops.CustomCall("ragged_all_to_all", call.operands(6), call.shape, config, api_version=4)
