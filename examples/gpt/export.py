"""Write the training step of the GPT for a number of devices as StableHLO: ``step.mlir`` beside this file.

    python examples/gpt/export.py 512

The batch is cut over the devices, eight contexts each; parameters and moments are whole on each of them.
"""

import argparse
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from model import CONTEXT
from train import BATCH, STEPS, initial, train_step


def main():
    parser = argparse.ArgumentParser(description="Write the GPT's training step as StableHLO.")
    parser.add_argument("devices", type=int, nargs="?", default=512, help="default: %(default)s")
    options = parser.parse_args()
    mesh = AbstractMesh((options.devices,), ("data",), axis_types=(AxisType.Auto,))
    whole, cut = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    state = jax.eval_shape(partial(initial, STEPS))
    words = jax.ShapeDtypeStruct((BATCH * options.devices, CONTEXT + 1), jnp.int32)
    step = jax.jit(partial(train_step, STEPS), in_shardings=(whole, cut), out_shardings=(whole, whole))
    file = Path(__file__).parent / "step.mlir"
    file.write_text(step.trace(state, words).lower(lowering_platforms=("cpu",)).as_text(debug_info=True))
    print(file)


if __name__ == "__main__":
    main()
