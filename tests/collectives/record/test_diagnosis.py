"""What files of ranks say: who is behind, who calls something else, for whom the others wait."""

import json
import os
import pickle
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.record.diagnosis import Diagnosis, diagnose
from collectives.record.reading import RecordError, read, read_all
from tests.mutants import mutate_values, mutated_bytes

SECOND = 10**9
#: What a job of four calls in turn: name, sizes and element type.
SCHEDULE = st.lists(
    st.sampled_from([("all_reduce", [4], "Float"), ("all_gather", [2, 3], "Long"), ("barrier", [], "Bool")]),
    min_size=2,
    max_size=8,
)


def entry(number: int, call: tuple[str, list[int], str], state: str = "completed", **others: Any) -> dict[str, Any]:
    """An entry as PyTorch's recorder has it."""
    name, sizes, dtype = call
    started = number * SECOND
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": started,
        "input_sizes": [sizes],
        "input_dtypes": [dtype],
        "output_sizes": [sizes],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": started,
        "time_discovered_completed_ns": started + SECOND // 2 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": f"{name}.py", "line": number}],
    } | others


def content(entries: list[dict[str, Any]], ranks: int = 4, **others: Any) -> dict[str, Any]:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries} | others


def written(folder: Path, of_ranks: dict[int, dict[str, Any]], *, as_json: bool = False) -> Path:
    for rank, each in of_ranks.items():
        data = json.dumps(each).encode() if as_json else pickle.dumps(each)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return folder


def found(folder: Path, of_ranks: dict[int, dict[str, Any]], *, as_json: bool = False) -> Diagnosis:
    return diagnose(read_all([written(folder, of_ranks, as_json=as_json)]))


@given(schedule=SCHEDULE, data=st.data())
def test_the_rank_that_stops_early_is_named_with_what_it_did_last(
    tmp_path_factory: pytest.TempPathFactory, schedule: list[tuple[str, list[int], str]], data: st.DataObject
) -> None:
    late, came = data.draw(st.integers(0, 3)), data.draw(st.integers(1, len(schedule) - 1))
    of_ranks = {}
    for rank in range(4):
        calls = [entry(number, call) for number, call in enumerate(schedule[:came], 1)]
        if rank != late:
            calls.append(entry(came + 1, schedule[came], "started"))
        of_ranks[rank] = content(calls)
    diagnosis = found(tmp_path_factory.mktemp("records"), of_ranks, as_json=data.draw(st.booleans()))
    name, last = schedule[came][0], schedule[came - 1][0]
    assert diagnosis.fault
    text = str(diagnosis)
    assert f"{name}.py:{came + 1}, number {came + 1} of the group of ranks 0-3. Rank {late} has not reached it" in text
    assert f"Rank {late} is behind. Its last of that group was number {came}, {last} of" in text


@given(schedule=SCHEDULE, data=st.data())
def test_the_rank_that_calls_something_else_is_named_beside_the_others(
    tmp_path_factory: pytest.TempPathFactory, schedule: list[tuple[str, list[int], str]], data: st.DataObject
) -> None:
    odd, at = data.draw(st.integers(0, 3)), data.draw(st.integers(0, len(schedule) - 1))
    other = data.draw(
        st.sampled_from([("all_reduce", [5], "Float"), ("all_reduce", [4], "Int"), ("broadcast", [4], "Half")])
    )
    of_ranks = {
        rank: content(
            [
                entry(number, other if rank == odd and number == at + 1 else call)
                for number, call in enumerate(schedule[: at + 1], 1)
            ]
        )
        for rank in range(4)
    }
    text = str(found(tmp_path_factory.mktemp("records"), of_ranks))
    shape, dtype = other[1][0], {"Float": "float32", "Int": "int32", "Half": "float16"}[other[2]]
    assert f"As number {at + 1} of the group of ranks 0-3, rank {odd} calls {other[0]} of {shape} {dtype} at" in text
    others = {0: "1-3", 1: "0, 2-3", 2: "0-1, 3", 3: "0-2"}[odd]
    assert f"where ranks {others} call {schedule[at][0]} of" in text


def test_a_straggler_is_told_with_its_share_of_the_waiting(tmp_path: Path) -> None:
    def one(rank: int) -> dict[str, Any]:
        calls = []
        for number in range(1, 11):
            came = number * SECOND + (SECOND // 2 if rank == 2 else 0)
            times = {
                "time_discovered_started_ns": came,
                "time_discovered_completed_ns": number * SECOND + SECOND // 2 + 1000,
            }
            calls.append(entry(number, ("all_reduce", [4], "Float"), **times))
        return content(calls)

    diagnosis = found(tmp_path, {rank: one(rank) for rank in range(4)})
    assert not diagnosis.fault
    assert "No rank is behind" in str(diagnosis)
    assert "15 s of it (100%) waiting for the last to come: rank 0 5 s, rank 1 5 s, rank 2 0 s, rank 3 5 s" in str(
        diagnosis
    )
    assert "Rank 2 is the straggler: it came last to 10 of 10, and caused 100% of the waiting." in str(diagnosis)


def test_a_rank_without_a_file_and_one_that_checkpoints_are_told(tmp_path: Path) -> None:
    waits = entry(1, ("all_reduce", [4], "Float"), "started")
    note = {"kind": "checkpoint", "what": "save of step 5", "time_created_ns": 1, "time_discovered_completed_ns": None}
    text = str(found(tmp_path, {0: content([waits]), 1: content([], notes=[note])}))
    assert "There is no file of ranks 2-3" in text
    assert "Rank 1 has not reached it." in text
    assert (
        "It has called none of that group; since then it communicates no more: it is in checkpoint save of step 5."
        in text
    )


def test_a_receive_that_nobody_sends_to_is_told(tmp_path: Path) -> None:
    pair = {"process_group": ("0->1 by channel 7", "undefined"), "is_p2p": True, "p2p_seq_id": 1}
    sent = entry(1, ("send 0->1", [4], "Float"), **pair)
    receives = [
        entry(1, ("recv 1<-0", [4], "Float"), **pair),
        entry(2, ("recv 1<-0", [4], "Float"), "started", **{**pair, "p2p_seq_id": 2}),
    ]
    groups = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"},
        "0->1 by channel 7": {"name": "0->1 by channel 7", "desc": "undefined", "ranks": "[0, 1]"},
    }
    records = {0: content([sent], pg_config=groups), 1: content(receives, pg_config=groups)}
    diagnosis = found(tmp_path, records)
    assert diagnosis.fault
    assert (
        "Rank 1 waits in recv 1<-0 of 4 float32 at recv 1<-0.py:2, number 2 of 0->1 by channel 7; rank 0 has sent 1."
        in str(diagnosis)
    )


def test_a_wait_of_a_moment_is_no_fault_while_the_job_goes_on(tmp_path: Path) -> None:
    waits = entry(2, ("all_reduce", [4], "Float"), "started")
    for goes_on in (True, False):
        facts = {"goes_on": goes_on, "recorded_ns": 2 * SECOND + SECOND // 10}
        before = entry(1, ("all_reduce", [4], "Float"))
        records = {0: content([before, waits], 2, **facts), 1: content([before], 2, **facts)}
        assert found(tmp_path, records).fault is not goes_on


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch evil",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pickle.dumps(_Evil()), r"calls (posix|nt)\.system"),
        (pickle.dumps(os.getcwd), "calls "),
        (b"", "neither a pickle nor JSON"),
        (b"\x80\x04K", "neither a pickle nor JSON"),
        (b'{"entries": [', "neither a pickle nor JSON"),
        (b"[1, 2]", "'entries' is needed"),
        (pickle.dumps({"entries": [{}]}), "entry 0 has no collective_seq_id, process_group, profiling_name, state"),
        (pickle.dumps({"entries": [3]}), "neither a pickle nor JSON"),
    ],
)
def test_a_file_that_is_none_is_refused_and_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rank_0"
    path.write_bytes(data)
    with pytest.raises(RecordError, match=words) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert not (tmp_path / "evil").exists()


def test_lists_as_pytorch_writes_them_are_lists(tmp_path: Path) -> None:
    """Torch's own pickler has lists of integers made by a function of torch, which need not be there."""
    data = b"\x80\x02}(X\x07\x00\x00\x00entriesctorch.jit._pickle\nbuild_intlist\n]\x85Ru."
    path = tmp_path / "rank_3"
    path.write_bytes(data)
    assert read(path).rank == 3


def test_what_pytorch_leaves_out_is_taken_as_it_means_it(tmp_path: Path) -> None:
    """Gloo describes no group, notes no times, of what has ended only that it is retired, and frames of torch."""

    def one(rank: int) -> dict[str, Any]:
        frames = [
            {"name": "all_reduce", "filename": "/lib/torch/distributed/c10d.py", "line": 9},
            {"name": "<module>", "filename": "train.py", "line": 7},
        ]
        facts = {"frames": frames, "time_discovered_started_ns": None, "time_discovered_completed_ns": None}
        calls = [entry(1, ("all_reduce", [4], "Float"), "scheduled", **facts, retired=True)]
        if rank == 0:
            calls.append(entry(2, ("all_reduce", [4], "Float"), "scheduled", **facts))
        return content(calls, pg_config={"": {"name": "", "desc": "", "ranks": "[0, 1]"}})

    text = str(found(tmp_path, {0: one(0), 1: one(1)}))
    assert (
        "Rank 0 waits in all_reduce of 4 float32 at train.py:7, number 2 of the group of ranks 0-1. Rank 1 has" in text
    )


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, {0: content([], rank=1), 1: content([], rank=1)})
    with pytest.raises(RecordError, match="is of rank 1, too"):
        read_all([folder])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RecordError, match="no records of ranks here"):
        read_all([empty])


def job() -> dict[int, dict[str, Any]]:
    """Three ranks: the last is behind, two of them exchange a message, and all have noted a step."""
    of_ranks = {}
    for rank in range(3):
        calls = [entry(number, ("all_reduce", [4], "Float")) for number in range(1, 5 - rank)]
        name = ("send 0->1", "recv 1<-0", "barrier")[rank]
        calls.append(entry(9, (name, [4], "Float"), "started", is_p2p=rank < 2, p2p_seq_id=1, process_group=["p", "p"]))
        note = {"kind": "step", "what": "1", "time_created_ns": 1, "time_discovered_completed_ns": None}
        of_ranks[rank] = content(calls, 3, recorded_ns=20 * SECOND, host=f"h{rank}", reason="r", notes=[note])
        of_ranks[rank]["pg_config"]["p"] = {"ranks": "[0, 1]"}
    return json.loads(json.dumps(of_ranks), object_pairs_hook=lambda pairs: {_rank(key): value for key, value in pairs})


def _rank(key: str) -> Any:
    return int(key) if key in ("0", "1", "2") else key


@pytest.mark.parametrize("as_json", [False, True])
def test_mutants_of_records_are_diagnosed_or_refused(tmp_path: Path, as_json: bool) -> None:
    random = Random(f"records {as_json}")
    refused = 0
    for _ in range(400):
        of_ranks, spoilt = job(), random.randrange(3)
        if bytes_alone := random.random() < 0.4:
            data = json.dumps(of_ranks[spoilt]).encode() if as_json else pickle.dumps(of_ranks[spoilt], 2)
            data = mutated_bytes(data, random)
        else:
            mutate_values(of_ranks[spoilt], random)
        folder = written(tmp_path, of_ranks, as_json=as_json)
        if bytes_alone:
            (folder / f"nccl_trace_rank_{spoilt}").write_bytes(data)
        try:
            assert str(diagnose(read_all([folder])))
        except RecordError:
            refused += 1
    assert 100 < refused < 390


def _doubled(times: int) -> list[Any]:
    """A list that stands for 2 ** `times` elements."""
    value: list[Any] = [1]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pickle.dumps({"entries": [], "host": _doubled(60)}), "expand to more"),
        (pickle.dumps({"entries": [entry(1, ("x", [4], "Float"), op="a" * 100_000)] * 100_000}), "expand to more"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "'entries' is needed"),  # memory for 2**31 objects, none of which is there
        (json.dumps({"entries": [], "recorded_ns": 10**300}).encode(), "more than 64 bits"),
        (b'{"entries": [], "recorded_ns": 1e999}', "where records have a time"),
        (b"[" * 100_000, "neither a pickle nor JSON"),
    ],
    ids=["doubled", "shared", "memo", "large", "infinite", "deep"],
)
def test_a_small_file_that_stands_for_much_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "rank_0"
    path.write_bytes(data)
    with pytest.raises(RecordError, match=words):
        read(path)
