"""The transformer of examples/sharded at a size worth a cluster, and five ways to lay its step out over processes.

Up to eight processes share a node; what talks most stays within it.
"""

import sys
from pathlib import Path

SHARDED = Path(__file__).parents[1] / "sharded"
sys.path.append(str(SHARDED))

from layouts import Layout, Sizes, Spec, by_heads, largest, whole  # noqa: E402

SIZES = Sizes(vocabulary=16384, width=1024, heads=16, hidden=4096, sequence=256, batch=4096)
#: Processes of a node, and those over which parameters are spread where they are fully sharded.
NODE, SHARDS = 8, 64
NAMES = ("data", "fully_sharded", "tensor", "sequence", "sharded_tensor")


def way(name: str, processes: int) -> Layout:
    """The layout `name` on so many processes, a multiple of eight.

    data            every process has all parameters and its share of the sequences
    fully_sharded   the same, but parameters and moments are spread over groups of up to 64 processes
    tensor          a node's processes share heads, hidden units and words; nodes share the sequences
    sequence        a node's processes share the positions of each sequence; nodes share the sequences
    sharded_tensor  as tensor within nodes, and parameters are spread over groups of up to 64 nodes
    """
    shapes = SIZES.parameters().items()
    nodes = processes // NODE
    if name == "data":
        return Layout({"data": processes}, {key: whole(shape) for key, shape in shapes}, ("data", None))
    if name == "fully_sharded":
        shards = min(processes, SHARDS)
        specs = {key: largest(shape, "shard") for key, shape in shapes}
        return Layout({"data": processes // shards, "shard": shards}, specs, (("data", "shard"), None))
    if name == "tensor":
        specs = {key: by_heads(key, shape, "model") for key, shape in shapes}
        return Layout({"data": nodes, "model": NODE}, specs, ("data", None))
    if name == "sequence":
        specs = {key: whole(shape) for key, shape in shapes}
        return Layout({"data": nodes, "sequence": NODE}, specs, ("data", "sequence"))
    if name == "sharded_tensor":
        shards = min(nodes, SHARDS)
        specs = {key: _spread(by_heads(key, shape, "model"), shape) for key, shape in shapes}
        return Layout({"data": nodes // shards, "shard": shards, "model": NODE}, specs, (("data", "shard"), None))
    raise ValueError(f"no layout {name}: there are {', '.join(NAMES)}")


def _spread(spec: Spec, shape: tuple[int, ...]) -> Spec:
    """`spec` with the largest dimension that it leaves whole cut along `shard`."""
    free = [index for index, axis in enumerate(spec) if axis is None]
    chosen = max(free, key=lambda index: shape[index])
    return tuple("shard" if index == chosen else axis for index, axis in enumerate(spec))
