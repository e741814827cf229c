"""Infeed and outfeed: where they come from and go to, in programs and in files."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.runtime.streams import read_stream, write_stream

LOOP = """func.func @main() -> tensor<i32> {
  %t = stablehlo.after_all : !stablehlo.token
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%k = %z, %sum = %z, %tok = %t) : tensor<i32>, tensor<i32>, !stablehlo.token
    cond { %n = stablehlo.constant dense<3> : tensor<i32>
      %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %k, %one : tensor<i32>
      %f:2 = "stablehlo.infeed"(%tok) {infeed_config = ""} : (!stablehlo.token) -> (tensor<i32>, !stablehlo.token)
      %s = stablehlo.add %sum, %f#0 : tensor<i32>
      %o = "stablehlo.outfeed"(%s, %j, %f#1) {outfeed_config = ""}
        : (tensor<i32>, tensor<i32>, !stablehlo.token) -> !stablehlo.token
      stablehlo.return %j, %s, %o : tensor<i32>, tensor<i32>, !stablehlo.token
    }
  return %r#1 : tensor<i32>
}"""
GRID = spmd.ProcessGrid(2, 1)


def feed(rank: int) -> list[np.ndarray]:
    return [np.array(10**rank * i, np.int32) for i in (1, 2, 3)]


def test_each_process_reads_and_writes_its_own_in_a_loop() -> None:
    written: list[list[tuple[int, int]]] = [[], []]
    called: list[tuple[int, int]] = []
    results = spmd.run_parallel(
        spmd.parse(LOOP), GRID, infeed=[feed(0), iter(feed(1))], outfeed=[written[0], called.append]
    )
    assert [int(r[0]) for r in results] == [6, 60]
    assert written[0] == [(1, 1), (3, 2), (6, 3)]
    assert called == [(10, 1), (30, 2), (60, 3)]


def test_streams_in_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", *feed(0))
    spmd.run_parallel(
        spmd.parse(LOOP), GRID, infeed=[tmp_path / "in.npz", feed(1)], outfeed=[tmp_path / "out.npz", None]
    )
    assert [tuple(map(int, entry)) for entry in read_stream(tmp_path / "out.npz")] == [(1, 1), (3, 2), (6, 3)]


@pytest.mark.parametrize("name", ["s.npz", "of no ending"])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4])
def test_a_file_keeps_order_and_element_types(tmp_path: Path, name: str, dtype: type) -> None:
    entries = [(np.full(2, i % 8, dtype), np.arange(i)) for i in range(12)]
    write_stream(tmp_path / name, entries)
    for got, entry in zip(read_stream(tmp_path / name), entries, strict=True):
        for a, b in zip(got, entry, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


def test_a_process_alone_takes_its_streams_with_the_call() -> None:
    executable = spmd.compile(spmd.parse(LOOP))
    written: list[tuple[int, int]] = []
    assert executable(infeed=feed(0), outfeed=written)[0] == 6
    assert written == [(1, 1), (3, 2), (6, 3)]
    assert executable(infeed=feed(0))[0] == 6
    assert len(written) == 6, "the outfeed stays until another is given"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (feed(0)[:2], "infeed: the infeed of process 0 is exhausted"),
        ([np.float32(1)], "the infeed of process 0 gives float32 of shape .* where tensor<i32> is read"),
        (None, "process 0 has no infeed"),
    ],
)
def test_what_an_infeed_may_lack(entries: list[np.ndarray] | None, words: str) -> None:
    with pytest.raises(spmd.ExecutionError, match=words):
        spmd.run_parallel(spmd.parse(LOOP), spmd.ProcessGrid(1, 1), infeed=[entries])


def test_a_program_may_stream_between_processes_of_one_grid() -> None:
    """One process's outfeed is another's infeed: waiting for it is waiting outside of the grid."""
    import queue

    between: queue.Queue[np.ndarray] = queue.Queue()
    first = [np.array(i, np.int32) for i in (1, 2, 3)]
    results = spmd.run_parallel(
        spmd.parse(LOOP), GRID, infeed=[between.get, first], outfeed=[None, lambda entry: between.put(entry[0])]
    )
    assert [int(r[0]) for r in results] == [1 + 3 + 6, 6]
