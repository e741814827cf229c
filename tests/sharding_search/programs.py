"""Programs without shardings, and the machine and network that layouts of them are searched for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import partitioner
import spmd
from partitioner.report import collectives
from spmd.predict.machine import Machine, read_machine
from spmd.predict.topology import read_topology
from spmd.sharding_search.layouts import ProgramLayout, Spec, mesh_op_of
from spmd.sharding_search.pricing import PricedLayout
from spmd.sharding_search.search import ShardingSearch

SCALING = Path(__file__).parents[2] / "examples" / "scaling"
MACHINE: Machine = read_machine(SCALING / "machine.toml")
NETWORK = read_topology(SCALING / "cluster.toml", MACHINE.rates["folding"])


def shape(*sizes: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def traced(function: Callable[..., Any], *arguments: Any) -> spmd.Module:
    """The program of a JAX function of arguments of these shapes."""
    return spmd.parse(jax.jit(function, keep_unused=True).lower(*arguments).as_text(), name="step.mlir")


def forward(weights: list[Any], x: Any) -> Any:
    """A multi-layer perceptron."""
    for weight in weights[:-1]:
        x = jax.nn.relu(x @ weight)
    return x @ weights[-1]


def train(weights: list[Any], x: Any, y: Any) -> list[Any]:
    """A step of gradient descent on one."""
    gradients = jax.grad(lambda weights: jnp.mean((forward(weights, x) - y) ** 2))(weights)
    return [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]


def searched(module: spmd.Module, mesh: dict[str, int], **options: Any) -> tuple[spmd.Module, Any]:
    """`spmd.autoshard` on the described cluster."""
    return spmd.autoshard(module, mesh=mesh, **{"machine": MACHINE, "topology": NETWORK, **options})


def priced(module: spmd.Module, mesh: dict[str, int], arguments: Sequence[Spec]) -> PricedLayout:
    """A layout of arguments that somebody wrote, as the search would price it."""
    search = ShardingSearch(module, "main", mesh_op_of(module, mesh), MACHINE, NETWORK)
    known = search.pricer.price(ProgramLayout(tuple(arguments), (None,) * len(search.model.results)))
    assert known is not None
    return known


def kinds(module: spmd.Module) -> Counter[str]:
    """How often each kind of collective is in the program of one process."""
    return Counter(row.kind for row in collectives(partitioner.partition(module).module))
