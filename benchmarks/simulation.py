"""``python -m benchmarks simulation``: compare grids of processes simulated as one stacked program with peers.

rounds      ten rounds of tanh, all_reduce and collective_permute on 64 floats per process, on --processes processes;
            compared with stacked NumPy written by hand and, if JAX is installed, ``jax.vmap`` with an axis name
mlp         one data-parallel step of a perceptron 784-512-512-10, 32 rows per process; compared with the same
            arithmetic as one batch on one process
transformer one training step of examples/sharded over data and model axes, on a 64 x 64 grid and on a 2 x 2 one, which
            give the same loss; only if JAX is installed
compiling   the seconds that ``spmd.simulate`` takes for --processes processes, and for 8
"""

import argparse
import importlib.util
import runpy
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import partitioner
import spmd
from benchmarks.harness import in_turns
from spmd.support.arrays import Array

ROUNDS, WIDTH = 10, 64
SIZES, ROWS, RATE = (784, 512, 512, 10), 32, 0.1


def type_of(*shape: int, element: str = "f32") -> str:
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def region(name: str) -> str:
    scalar = type_of()
    return (
        f"({{\n^bb0(%a: {scalar}, %b: {scalar}):\n%c = stablehlo.{name} %a, %b : {scalar}\n"
        f"stablehlo.return %c : {scalar}\n}})"
    )


class Text:
    """Builder of a function's lines, each of which defines a value."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, op: str, operands: str, attributes: str, types: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f'{name} = "stablehlo.{op}"({operands}) {attributes} : {types}')
        return name

    def all_reduce(self, value: str, type: str, processes: int) -> str:
        groups = f"replica_groups = dense<{[list(range(processes))]}> : tensor<1x{processes}xi64>"
        return self("all_reduce", value, f"{region('add')} {{{groups}}}", f"({type}) -> {type}")


def rounds_program(processes: int, rounds: int = ROUNDS) -> spmd.Module:
    """Return a program of rounds of tanh, an all_reduce, and a collective_permute to the neighbour."""
    text, type = Text(), type_of(WIDTH)
    pairs = [[rank, (rank + 1) % processes] for rank in range(processes)]
    ring = f"{{source_target_pairs = dense<{pairs}> : tensor<{processes}x2xi64>}}"
    value = "%x"
    for _ in range(rounds):
        bent = text("tanh", value, "", f"({type}) -> {type}")
        total = text.all_reduce(bent, type, processes)
        passed = text("collective_permute", bent, ring, f"({type}) -> {type}")
        value = text("add", f"{passed}, {total}", "", f"({type}, {type}) -> {type}")
    lines = "\n".join(text.lines)
    return spmd.parse(f"func.func @main(%x: {type}) -> {type} {{\n{lines}\nreturn {value} : {type}\n}}")


def mlp_program(processes: int, rows: int = ROWS) -> spmd.Module:
    """Return a program of one step of SGD with softmax cross-entropy on the rows of all processes."""
    text = Text()
    parameters = [kind for a, b in pairwise(SIZES) for kind in (type_of(a, b), type_of(b))]
    types = [*parameters, type_of(rows, SIZES[0]), type_of(rows, SIZES[-1])]
    layers = len(SIZES) - 1

    def product(left: str, right: str, contracting: tuple[int, int], shapes: Any) -> str:
        numbers = f"lhs_contracting_dimensions = [{contracting[0]}], rhs_contracting_dimensions = [{contracting[1]}]"
        kinds = [type_of(*shape) for shape in shapes]
        return text(
            "dot_general", f"{left}, {right}", f"{{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}",
            f"({kinds[0]}, {kinds[1]}) -> {kinds[2]}",
        )  # fmt: skip

    def binary(name: str, left: str, right: str, *shape: int) -> str:
        kind = type_of(*shape)
        return text(name, f"{left}, {right}", "", f"({kind}, {kind}) -> {kind}")

    def constant(value: float, *shape: int) -> str:
        return text("constant", "", f"{{value = dense<{value:e}> : {type_of(*shape)}}}", f"() -> {type_of(*shape)}")

    def spread(value: str, size: int, dimension: int, *shape: int) -> str:
        attributes = f"{{broadcast_dimensions = array<i64: {dimension}>}}"
        return text("broadcast_in_dim", value, attributes, f"({type_of(size)}) -> {type_of(*shape)}")

    def fold(name: str, value: str, init: float, dimension: int, *shape: int) -> str:
        kept = type_of(*(size for index, size in enumerate(shape) if index != dimension))
        attributes = f"{region(name)} {{dimensions = array<i64: {dimension}>}}"
        return text("reduce", f"{value}, {constant(init)}", attributes, f"({type_of(*shape)}, {type_of()}) -> {kept}")

    activations = ["%a6"]
    for layer in range(layers):
        a, b = SIZES[layer], SIZES[layer + 1]
        output = product(activations[-1], f"%a{2 * layer}", (1, 0), ((rows, a), (a, b), (rows, b)))
        output = binary("add", output, spread(f"%a{2 * layer + 1}", b, 1, rows, b), rows, b)
        activations.append(output if layer == layers - 1 else binary("maximum", output, constant(0, rows, b), rows, b))
    b = SIZES[-1]
    largest = fold("maximum", activations[-1], -3e38, 1, rows, b)
    moved = binary("subtract", activations[-1], spread(largest, rows, 0, rows, b), rows, b)
    powers = text("exponential", moved, "", f"({type_of(rows, b)}) -> {type_of(rows, b)}")
    sums = spread(fold("add", powers, 0, 1, rows, b), rows, 0, rows, b)
    upstream = binary("subtract", binary("divide", powers, sums, rows, b), "%a7", rows, b)
    upstream = binary("multiply", upstream, constant(1 / (rows * processes), rows, b), rows, b)
    slopes: dict[int, str] = {}
    for layer in reversed(range(layers)):
        a, b = SIZES[layer], SIZES[layer + 1]
        slopes[2 * layer] = product(activations[layer], upstream, (0, 0), ((rows, a), (rows, b), (a, b)))
        slopes[2 * layer + 1] = fold("add", upstream, 0, 0, rows, b)
        if layer:
            upstream = product(upstream, f"%a{2 * layer}", (1, 1), ((rows, b), (a, b), (rows, a)))
            compared = f"({type_of(rows, a)}, {type_of(rows, a)}) -> {type_of(rows, a, element='i1')}"
            direction = "{comparison_direction = #stablehlo<comparison_direction GT>}"
            zero = constant(0, rows, a)
            on = text("compare", f"{activations[layer]}, {zero}", direction, compared)
            kinds = f"({type_of(rows, a, element='i1')}, {type_of(rows, a)}, {type_of(rows, a)}) -> {type_of(rows, a)}"
            upstream = text("select", f"{on}, {upstream}, {zero}", "", kinds)
    results = []
    shapes = [shape for a, b in pairwise(SIZES) for shape in ((a, b), (b,))]
    for index, (kind, shape) in enumerate(zip(parameters, shapes, strict=True)):
        slope = text.all_reduce(slopes[index], kind, processes) if processes > 1 else slopes[index]
        scaled = binary("multiply", slope, constant(RATE, *shape), *shape)
        results.append(binary("subtract", f"%a{index}", scaled, *shape))
    arguments = ", ".join(f"%a{index}: {kind}" for index, kind in enumerate(types))
    listed, lines = ", ".join(parameters), "\n".join(text.lines)
    returned = f"{', '.join(results)} : {listed}"
    return spmd.parse(f"func.func @main({arguments}) -> ({listed}) {{\n{lines}\nreturn {returned}\n}}")


def mlp_arguments(processes: int, rows: int = ROWS) -> list[Array]:
    """Return the parameters, the same for all processes, and the rows of each."""
    rng = np.random.default_rng(0)
    shapes = [shape for a, b in pairwise(SIZES) for shape in ((a, b), (b,))]
    parameters = [(rng.standard_normal((1, *shape)) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes]
    images = rng.standard_normal((processes, rows, SIZES[0])).astype(np.float32)
    targets = np.eye(SIZES[-1], dtype=np.float32)[rng.integers(0, SIZES[-1], (processes, rows))]
    return [*parameters, images, targets]


def rounds_by_hand(x: Array) -> Array:
    for _ in range(ROUNDS):
        x = np.tanh(x)
        x = np.roll(x, 1, axis=0) + x.sum(axis=0)
    return x


def _rounds_of_jax(x: Array) -> Callable[[], object] | None:
    try:
        import jax
        from jax import lax
    except ImportError:
        return None
    processes = len(x)
    ring = [(rank, (rank + 1) % processes) for rank in range(processes)]

    def step(value: Any) -> Any:
        for _ in range(ROUNDS):
            value = jax.numpy.tanh(value)
            value = lax.ppermute(value, "p", ring) + lax.psum(value, "p")
        return value

    run = jax.jit(jax.vmap(step, axis_name="p"))
    return lambda: run(x).block_until_ready()


def _seconds(make: Callable[[], object]) -> float:
    start = time.perf_counter()
    make()
    return time.perf_counter() - start


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulation", description=__doc__)
    parser.add_argument("--processes", type=int, default=4096)
    parser.add_argument("--replicas", type=int, default=512, help="processes of the data-parallel step")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds per comparison")
    arguments = parser.parse_args(argv)
    processes, replicas = arguments.processes, arguments.replicas

    grid, module = spmd.ProcessGrid(processes, 1), rounds_program(processes)
    simulation = spmd.simulate(module, grid)
    x = np.random.default_rng(0).standard_normal((processes, WIDTH)).astype(np.float32)
    contestants: dict[str, Callable[[], object]] = {
        "spmd": lambda: simulation(x), "numpy by hand": lambda: rounds_by_hand(x),
    }  # fmt: skip
    jax = _rounds_of_jax(x)
    if jax is not None:
        contestants["jax.vmap"] = jax
    _print(f"rounds, {processes} processes", in_turns(contestants, arguments.budget))

    step = spmd.simulate(mlp_program(replicas), spmd.ProcessGrid(replicas, 1))
    inputs = mlp_arguments(replicas)
    batch = spmd.compile(mlp_program(1, ROWS * replicas), spmd.ProcessGrid(1, 1))
    flat = [array[0] for array in inputs[:-2]] + [array.reshape(-1, array.shape[-1]) for array in inputs[-2:]]
    contestants = {"spmd": lambda: step(*inputs), "one batch": lambda: batch(*flat)}
    _print(f"mlp, {replicas} processes", in_turns(contestants, arguments.budget))

    for axis in (2, 64):
        _transformer(axis)
    few, grid_of_few = rounds_program(8), spmd.ProcessGrid(8, 1)
    for count, program, where in ((8, few, grid_of_few), (processes, module, grid)):
        best = min(_seconds(lambda: spmd.simulate(program, where)) for _ in range(3))  # noqa: B023
        print(f"compiling for {count} processes: {best * 1e3:.1f} ms")
    return 0


def transformer_program(sizes: Any, axis: int) -> spmd.Module | None:
    """Return a training step over `axis` x `axis` processes, along data and model; None without JAX."""
    if not importlib.util.find_spec("jax"):
        return None
    folder = Path(__file__).parents[1] / "examples" / "sharded"
    sys.path.insert(0, str(folder))
    try:
        export, layouts = (runpy.run_path(str(folder / f"{name}.py")) for name in ("export", "layouts"))
    finally:
        sys.path.remove(str(folder))
    specs = [layouts["by_heads"](name, shape, "model") for name, shape in sizes.parameters().items()]
    mesh = {"data": axis, "model": axis}
    return partitioner.with_shardings(
        spmd.parse(export["program"](sizes)), mesh, [*specs * 3, *[("data", None)] * 2], [(), *specs * 3]
    )


def transformer_arguments(sizes: Any) -> list[Array]:
    """Return parameters, zero moments, and words, for the whole mesh."""
    rng = np.random.default_rng(0)
    shapes = list(sizes.parameters().values())
    parameters = [
        np.ones(shape, np.float32) if len(shape) == 1 else (0.05 * rng.standard_normal(shape)).astype(np.float32)
        for shape in shapes
    ]
    words = [rng.integers(0, sizes.vocabulary, (sizes.batch, sizes.sequence)).astype(np.int32) for _ in range(2)]
    return [*parameters, *[np.zeros(shape, np.float32) for shape in shapes] * 2, *words]


def transformer_sizes() -> Any:
    """Return sizes of the example's transformer that 64 processes along either axis divide."""
    layouts = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "sharded" / "layouts.py"))
    return layouts["Sizes"](heads=64, hidden=256, sequence=16, batch=64)


def _transformer(axis: int) -> None:
    module = transformer_program(transformer_sizes(), axis)
    if module is None:
        return
    began = time.perf_counter()
    simulation = spmd.simulate(module, spmd.ProcessGrid(1, axis * axis))
    compiled = time.perf_counter() - began
    arrays = simulation.shard(*transformer_arguments(transformer_sizes()))
    simulation(*arrays)
    seconds = _seconds(lambda: simulation(*arrays))
    loss = simulation.unshard(*simulation(*arrays))[0]
    print(
        f"transformer, {axis} x {axis} processes: compiled in {compiled:.2f} s, a step in {seconds:.2f} s, loss {loss}"
    )


def _print(title: str, timings: Any) -> None:
    print(title)
    first = timings["spmd"].median
    for name, timing in timings.items():
        print(f"  {name:16} {timing.median * 1e3:10.2f} ms   {first / timing.median:6.2f}")
