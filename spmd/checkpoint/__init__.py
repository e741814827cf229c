"""Atomic checkpoints, written by any number of processes and read by any other.

    checkpoint.save("checkpoints", step, {"params": params, "optimizer": state})
    step = checkpoint.newest("checkpoints")
    tree = checkpoint.restore("checkpoints", step, like=tree)

`save`, `newest`, `restore` and `verify` are collective calls of all processes (MPI ranks; a communicator selects some).
A checkpoint is a manifest, ``step-<step>.json``, and a folder next to it with one safetensors file per process. The
files are flushed to disk (fsync) before the manifest is renamed to its final name, which commits the checkpoint
atomically. The manifest has checksums of every byte, its own included; nothing is used before its checksum is verified.
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
