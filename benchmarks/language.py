# ruff: noqa: E501 - programs are kept as printed
"""Benchmark parsing and verification, compared with MLIR's parser, constants, compilation, and memory."""

import argparse
import gc
import re
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import spmd
from benchmarks.harness import duration, in_turns, print_table, write_json

#: The targets.
OPS_A_SECOND = 30_000
HEX_MEGABYTES_A_SECOND = 300
READY_SECONDS = 1.0
READY_OPS = 10_000
MEMORY_TIMES = 3

_LAYER = """\
    %cst_{i} = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %{i}a = stablehlo.dot_general %{p}, %arg1, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x16x32xf32>, tensor<32x32xf32>) -> tensor<4x16x32xf32>
    %{i}b = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<32xf32>) -> tensor<4x16x32xf32>
    %{i}c = stablehlo.add %{i}a, %{i}b : tensor<4x16x32xf32>
    %{i}d = stablehlo.reduce(%{i}c init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x16x32xf32>, tensor<f32>) -> tensor<4x16xf32>
    %{i}e = stablehlo.reshape %{i}d : (tensor<4x16xf32>) -> tensor<4x16x1xf32>
    %{i}f = stablehlo.broadcast_in_dim %{i}e, dims = [0, 1, 2] : (tensor<4x16x1xf32>) -> tensor<4x16x32xf32>
    %{i}g = stablehlo.subtract %{i}c, %{i}f : tensor<4x16x32xf32>
    %{i}h = stablehlo.slice %{i}g [0:4, 0:16, 0:16] : (tensor<4x16x32xf32>) -> tensor<4x16x16xf32>
    %{i}i = stablehlo.concatenate %{i}h, %{i}h, dim = 2 : (tensor<4x16x16xf32>, tensor<4x16x16xf32>) -> tensor<4x16x32xf32>
    %{i}j = stablehlo.compare GT, %{i}g, %{i}i, FLOAT : (tensor<4x16x32xf32>, tensor<4x16x32xf32>) -> tensor<4x16x32xi1>
    %{i}k = stablehlo.select %{i}j, %{i}g, %{i}i : tensor<4x16x32xi1>, tensor<4x16x32xf32>
    %{i}l = stablehlo.transpose %{i}k, dims = [0, 1, 2] : (tensor<4x16x32xf32>) -> tensor<4x16x32xf32>
    %{i}m = stablehlo.tanh %{i}l : tensor<4x16x32xf32>
    %{i} = stablehlo.multiply %{i}m, %{p} : tensor<4x16x32xf32>
"""


@dataclass(frozen=True)
class LanguageResult:
    what: str
    value: float
    unit: str
    target: str
    holds: bool


def layers(ops: int) -> str:
    """Return a program of at least `ops` ops: a chain of layers of fifteen ops each."""
    count = -(-ops // _LAYER.count("\n"))
    body = "".join(_LAYER.format(i=f"v{i}", p=f"v{i - 1}" if i else "arg0") for i in range(count))
    return (
        "func.func @main(%arg0: tensor<4x16x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<32xf32>)"
        " -> tensor<4x16x32xf32> {\n    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>\n"
        f"{body}    return %v{count - 1} : tensor<4x16x32xf32>\n}}\n"
    )


def hex_constant(megabytes: int) -> str:
    """Return a program of one constant whose text has `megabytes` million characters."""
    data = np.random.default_rng(0).bytes(megabytes * 500_000)
    size = len(data) // 4
    return (
        f"func.func @main() -> tensor<{size}xf32> {{\n"
        f'  %0 = stablehlo.constant dense<"0x{data.hex().upper()}"> : tensor<{size}xf32>\n'
        f"  return %0 : tensor<{size}xf32>\n}}\n"
    )


def count_ops(module: spmd.Module) -> int:
    return sum(1 for _ in module.walk())


def fastest(call: Callable[[], object], rounds: int = 5) -> float:
    """Return the seconds of the fastest of `rounds` calls."""
    seconds = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def reading(budget: float) -> list[LanguageResult]:
    """Measure ops parsed and verified per second, and the ratio to MLIR's parser and verifier."""
    text = layers(READY_OPS)
    ops = count_ops(spmd.parse(text))
    contestants: dict[str, Callable[[], object]] = {"spmd": lambda: spmd.parse(text)}
    peer = _mlir(text)
    if peer is not None:
        contestants["MLIR"] = peer
    timings = in_turns(contestants, budget)
    speed = ops / timings["spmd"].median
    results = [
        LanguageResult(
            f"layers, {ops} ops: read and verified", speed, "ops/s", f">= {OPS_A_SECOND}", speed >= OPS_A_SECOND
        )
    ]
    if peer is not None:
        ratio = timings["spmd"].median / timings["MLIR"].median
        results.append(LanguageResult("the same, against MLIR in C++", ratio, "times its time", "", True))
    return results


def _mlir(text: str) -> Callable[[], object] | None:
    """Return a call of MLIR's parser, from jaxlib; None without jax."""
    try:
        from jax._src.interpreters import mlir
        from jaxlib.mlir import ir
    except ImportError:
        return None

    def call() -> Any:
        with mlir.make_ir_context():
            return ir.Module.parse(text)

    return call


def ready() -> LanguageResult:
    """Measure the time to parse, verify and compile a program."""
    text = layers(READY_OPS)
    seconds = fastest(lambda: spmd.compile(spmd.parse(text)), 3)
    return LanguageResult(
        f"{READY_OPS} ops: ready to run", seconds, "s", f"<= {READY_SECONDS}", seconds <= READY_SECONDS
    )


def constants(megabytes: int) -> LanguageResult:
    """Measure characters of a hexadecimal constant parsed per second."""
    text = hex_constant(megabytes)
    speed = len(text) / 1e6 / fastest(lambda: spmd.parse(text))
    target = HEX_MEGABYTES_A_SECOND
    return LanguageResult(f"hex constant of {megabytes} MB: read", speed, "MB/s", f">= {target}", speed >= target)


def numbered(text: str) -> str:
    """Return the program with its values renamed as JAX and MLIR print them: `%0`, `%1`, ..."""
    names: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith("%arg") else names.setdefault(match[0], f"%{len(names)}")

    return re.sub(r"%\w+", number, text)


def memory() -> list[LanguageResult]:
    """Measure the memory of a parsed program and the peak while it is parsed, both including the text.

    The data of constants is added to the limit.
    """
    results = []
    programs = [
        ("layers", layers(READY_OPS), 0),
        ("layers, values numbered", numbered(layers(READY_OPS)), 0),
        ("hex constant", hex_constant(32), 16_000_000),
    ]
    for what, text, data in programs:
        held, peak = traced(text)
        limit = MEMORY_TIMES + data / len(text)
        target = f"<= {limit:.3g}"
        for when, size in (("held once read", held), ("most while read", peak)):
            times = 1 + size / len(text)
            results.append(LanguageResult(f"{what}: memory {when}", times, "times its text", target, times <= limit))
    return results


def traced(text: str) -> tuple[int, int]:
    """Return the bytes of the program parsed from `text`, and the peak while it is parsed, without the text."""
    spmd.parse(text)
    gc.collect()
    tracemalloc.start()
    module = spmd.parse(text)
    sizes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del module
    return sizes


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks language", description=__doc__)
    parser.add_argument("--threads", type=int, help="threads (default: 1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="spent on the comparison (default: %(default)s)")
    parser.add_argument("--megabytes", type=int, default=64, help="of hexadecimal constant (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks-language.json"), help="default: %(default)s")
    options = parser.parse_args(argv)
    results = [*reading(options.seconds), ready(), constants(options.megabytes), *memory()]
    rows = [(each.what, f"{each.value:.3g} {each.unit}", each.target) for each in results]
    print_table(("what", "measured", "wanted"), rows)
    print(f"one op read and verified: {duration(1 / results[0].value)}")
    write_json(options.json, {"language": results})
    return 0 if all(each.holds for each in results) else 1
