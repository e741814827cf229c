"""What is sent is what is received, and the same amount in explain, predict and view, for every collective."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import spmd
from collectives.algorithms import ALGORITHMS
from launch.cli import main
from spmd.support.amounts import amount

N = 8160  # bytes of an operand: 2040 floats
ADD = """({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
})"""


def program(op: str, size: int, attributes: str = "", *, region: str = "", result: int = 2040) -> str:
    groups = f"replica_groups = dense<[{list(range(size))}]> : tensor<1x{size}xi64>"
    given = attributes if "source_target_pairs" in attributes else ", ".join(filter(None, (groups, attributes)))
    return f"""module attributes {{mhlo.num_replicas = {size} : i32}} {{
func.func @main(%x: tensor<2040xf32>) -> tensor<{result}xf32> {{
  %y = "stablehlo.{op}"(%x) <{{{given}}}> {region} : (tensor<2040xf32>) -> tensor<{result}xf32>
  return %y : tensor<{result}xf32>
}}}}"""


def cases(size: int) -> dict[str, tuple[str, float, float]]:
    """Programs of each collective, with bytes that its busiest process sends, and those of all: counted by hand."""
    ring = [[rank, (rank + 1) % size] for rank in range(size)]
    line = ring[:-1]
    pairs = {
        name: program("collective_permute", size, f"source_target_pairs = dense<{each}> : tensor<{len(each)}x2xi64>")
        for name, each in (("ring", ring), ("line", line))
    }
    split = f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {size} : i64"
    part = N * (size - 1) / size
    return {
        "all_reduce": (program("all_reduce", size, region=ADD), 2 * part, 2 * part * size),
        "reduce_scatter": (
            program("reduce_scatter", size, "scatter_dimension = 0 : i64", region=ADD, result=2040 // size),
            part,
            part * size,
        ),
        "all_gather": (
            program("all_gather", size, "all_gather_dim = 0 : i64", result=2040 * size),
            N * (size - 1),
            N * (size - 1) * size,
        ),
        "all_to_all": (program("all_to_all", size, split), part, part * size),
        "collective_broadcast": (program("collective_broadcast", size), N, N * (size - 1)),
        "permute, ring": (pairs["ring"], N, N * size),
        "permute, line": (pairs["line"], N, N * (size - 1)),
    }


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_explain_predict_and_view_say_the_same_bytes(
    size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cluster = tmp_path / "p.mlir", tmp_path / "cluster.toml"
    for number, (name, (text, each, together)) in enumerate(cases(size).items()):
        path.write_text(text)
        assert main(["explain", str(path)]) == 0
        said = re.search(r"sends ([^,]+), receives (.+)", capsys.readouterr().out)
        assert said is not None and said.groups() == (amount(round(each)),) * 2, name
        algorithm = ALGORITHMS[number % len(ALGORITHMS)]
        cluster.write_text(f'[[level]]\nname = "cluster"\nlatency = 1e-6\nbandwidth = 1e9\nalgorithm = "{algorithm}"\n')
        for options in ([], ["--topology", str(cluster)]):
            assert main(["predict", str(path), "--json", *options]) == 0
            assert sum(json.loads(capsys.readouterr().out)["levels"].values()) == pytest.approx(together), name
        assert viewed(text, size) == pytest.approx((each, together)), name


def viewed(text: str, size: int) -> tuple[float, float]:
    """Bytes that a page says that the busiest process sends, and those of all messages that it draws."""
    page = spmd.view(spmd.parse(text))
    (data,) = page.documents
    (collective,) = data["collectives"]
    (message,) = collective["messages"]
    assert message["sent"] == message["received"]
    if "pairs" in message:
        return message["sent"], sum(message["bytes"] for source, target in message["pairs"] if source != target)
    sent = 0.0
    for times, distance, nbytes, stride in message["rounds"]:
        edges = len(range(0, size - abs(distance), stride)) if stride else size
        sent += times * nbytes * edges
    return message["sent"], sent
