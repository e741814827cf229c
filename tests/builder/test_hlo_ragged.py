"""HLO's ragged-all-to-all: rows go where the offsets and sizes say, as many as they say."""

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array

ROWS, OUTPUT = 6, 7


def text(processes: int, segments: int, groups: str, index: str = "s32", channel: bool = True) -> str:
    told = "\n".join(f"  v{n} = {index}[{segments}] parameter({n + 2})" for n in range(4))
    numbers = "channel_id=1, " if channel else ""
    header = f"num_partitions={processes}" if channel else f"replica_count={processes}"
    return f"""HloModule m, {header}

ENTRY e {{
  x = f32[{ROWS},2] parameter(0)
  y = f32[{OUTPUT},2] parameter(1)
{told}
  ROOT r = f32[{OUTPUT},2] ragged-all-to-all(x, y, v0, v1, v2, v3), {numbers}replica_groups={groups}
}}
"""


def expected(groups: list[list[int]], arguments: list[list[Array]], per: int) -> list[Array]:
    results = [process[1].copy() for process in arguments]
    for group in groups:
        for sender in group:
            x, _, starts, sizes, places, _ = arguments[sender]
            for segment in range(len(starts)):
                receiver = group[segment // per]
                start, size, place = starts[segment], sizes[segment], places[segment]
                results[receiver][place : place + size] = x[start : start + size]
    return results


def drawn(rng: np.random.Generator, groups: list[list[int]], per: int, index: str) -> list[list[Array]]:
    """Segments of up to two rows, each with a place of its own in the receiver's output."""
    processes = sum(map(len, groups))
    numbers = {name: np.zeros((processes, len(groups[0]) * per), index) for name in ("start", "size", "place", "got")}
    for group in groups:
        for at, receiver in enumerate(group):
            free = 0
            for place, sender in enumerate(group):
                for extra in range(per):
                    segment = at * per + extra
                    size = min(int(rng.integers(0, 3)), OUTPUT - free)
                    numbers["size"][sender, segment] = numbers["got"][receiver, place * per + extra] = size
                    numbers["start"][sender, segment] = rng.integers(0, ROWS - size + 1)
                    numbers["place"][sender, segment] = free
                    free += size
    arrays = [[rng.normal(size=(rows, 2)).astype(np.float32) for rows in (ROWS, OUTPUT)] for _ in range(processes)]
    return [[*arrays[rank], *(numbers[name][rank] for name in numbers)] for rank in range(processes)]


CASES = {
    "two processes": (2, 1, [[0, 1]], "{{0,1}}"),
    "three segments each": (2, 3, [[0, 1]], "{{0,1}}"),
    "two groups, one backwards": (4, 1, [[0, 2], [3, 1]], "{{0,2},{3,1}}"),
    "all there are": (3, 2, [[0, 1, 2]], "{}"),
    "one alone": (1, 2, [[0]], "{{0}}"),
}


@pytest.mark.parametrize("channel", [True, False])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("case", CASES)
def test_rows_go_where_they_are_sent(case: str, index: str, channel: bool) -> None:
    processes, per, groups, written = CASES[case]
    module = spmd.parse(
        text(processes, len(groups[0]) * per, written, {"int32": "s32", "int64": "s64"}[index], channel)
    )
    grid = spmd.ProcessGrid(1, processes) if channel else spmd.ProcessGrid(processes, 1)
    arguments = drawn(np.random.default_rng(per), groups, per, index)
    results = spmd.run_parallel(module, grid, arguments, timeout=30)
    for (result,), correct in zip(results, expected(groups, arguments, per), strict=True):
        np.testing.assert_array_equal(result, correct)


def test_numbers_that_do_not_fit_the_group_are_told() -> None:
    with pytest.raises(spmd.SpmdError, match="vectors of a multiple of 2 integers"):
        spmd.compile(spmd.parse(text(2, 3, "{{0,1}}")))


@pytest.mark.parametrize(
    ("name", "number"), [("rhs_group_dims", 5), ("lhs_ragged_dims", 7), ("lhs_contracting_dims", -1)]
)
def test_a_dimension_of_a_ragged_dot_that_is_not_there_is_refused_at_its_place(name: str, number: int) -> None:
    dimensions = {"lhs_contracting_dims": 1, "rhs_contracting_dims": 1, "lhs_ragged_dims": 0, "rhs_group_dims": 0}
    attributes = ", ".join(f"{key}={{{value}}}" for key, value in (dimensions | {name: number}).items())
    with pytest.raises(spmd.SpmdError) as refused:
        spmd.parse(f"""HloModule m

ENTRY e {{
  a = f32[11,5] parameter(0)
  b = f32[3,5,7] parameter(1)
  g = s64[3] parameter(2)
  ROOT r = f32[11,7] ragged-dot(a, b, g), {attributes}
}}
""")
    assert refused.value.diagnostics[0].location.line == 7
