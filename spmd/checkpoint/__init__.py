"""Checkpoints that are whole or absent, written by any number of processes and read by any other.

    checkpoint.save("checkpoints", step, {"params": params, "optimizer": state})
    step = checkpoint.newest("checkpoints")
    tree = checkpoint.restore("checkpoints", step, like=tree)

`save`, `newest`, `restore` and `verify` are called by all processes (MPI ranks; a communicator narrows them down), like
collectives. A checkpoint is a manifest, ``step-<step>.json``, and a folder beside it with a file a process in the
safetensors format. The files are flushed to the disk before the manifest is renamed to its name: that one rename makes
the checkpoint. The manifest holds a checksum of every byte, its own included, and nothing is believed before
its checksum has been seen.
"""

from spmd.checkpoint.blocks import ArrayBlock
from spmd.checkpoint.reading import newest, restore, verify
from spmd.checkpoint.saving import save
from spmd.checkpoint.store import remove, steps
from spmd.checkpoint.writing import Pending
from spmd.errors import CheckpointError, DamagedCheckpointError

__all__ = [
    "ArrayBlock",
    "CheckpointError",
    "DamagedCheckpointError",
    "Pending",
    "newest",
    "remove",
    "restore",
    "save",
    "steps",
    "verify",
]
