"""Different programs stacked program by program: the threads' results, and the same refusals."""

import logging

import numpy as np
import pytest

import spmd
from tests.compiler.stacking import same_bits
from tests.effort import some_slow
from tests.runtime.drawn_programs import draw_programs

GROUPS = "dense<[[0, 1, 2], [3, 4, 5]]> : tensor<2x3xi64>"


def program(before: str, after: str, groups: str = GROUPS) -> str:
    return f"""
module attributes {{mhlo.num_replicas = 6 : i32}} {{
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<ui32>, tensor<4xf32>) {{
    %a = stablehlo.{before} %x : tensor<4xf32>
    %s = "stablehlo.all_reduce"(%a) <{{replica_groups = {groups}}}> ({{
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %sum = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %sum : tensor<f32>
    }}) : (tensor<4xf32>) -> tensor<4xf32>
    %b = stablehlo.{after} %s : tensor<4xf32>
    %p = "stablehlo.collective_permute"(%b) <{{source_target_pairs = dense<[[0, 3], [3, 5]]> : tensor<2x2xi64>}}>
      : (tensor<4xf32>) -> tensor<4xf32>
    %id = stablehlo.replica_id : tensor<ui32>
    %c = stablehlo.constant dense<1.0> : tensor<4xf32>
    return %p, %id, %c : tensor<4xf32>, tensor<ui32>, tensor<4xf32>
  }}
}}"""


FIRST = spmd.parse(program("sine", "cosine"))
SECOND = spmd.parse(program("exponential", "negate"))
INPUTS = [[np.linspace(rank, rank + 1, 4, dtype=np.float32)] for rank in range(6)]


@pytest.mark.parametrize(
    "table",
    [
        [[FIRST], [SECOND], [SECOND], [FIRST], [FIRST], [SECOND]],
        [[SECOND], *[[FIRST]] * 5],
        [[FIRST]] * 5 + [[SECOND]],
    ],
)
def test_each_process_gets_what_its_thread_gets(table: list[list[spmd.Module]]) -> None:
    threads = spmd.run_parallel(table, None, INPUTS, mode="threads")
    stacked = spmd.run_parallel(table, None, INPUTS, mode="stacked")
    for left, right in zip(threads, stacked, strict=True):
        assert all(same_bits(a, b) for a, b in zip(left, right, strict=True))


def test_programs_of_other_arguments_and_results() -> None:
    text = """
module attributes {mhlo.num_replicas = 20 : i32} {
  func.func @main(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
    %p = stablehlo.multiply %x, %y : tensor<3xf32>
    %r = "stablehlo.collective_broadcast"(%p) <{replica_groups = dense<[ROWS]> : tensor<1x20xi64>}>
      : (tensor<3xf32>) -> tensor<3xf32>
    return %r : tensor<3xf32>
  }
}""".replace("ROWS", str(list(range(20))))
    giver = spmd.parse(text)
    taker = spmd.parse(text.replace("%x: tensor<3xf32>, %y", "%y").replace("%x, %y", "%y, %y"))
    table = [[giver], *[[taker]] * 19]
    ones = np.ones(3, np.float32)
    inputs = [[2 * ones, 3 * ones], *[[ones]] * 19]
    # More than sixteen processes are stacked without being asked.
    results = spmd.run_parallel(table, None, inputs)
    assert all(result.tolist() == [6.0] * 3 for (result,) in results)


def test_what_cannot_be_stacked_runs_as_threads(caplog: pytest.LogCaptureFixture) -> None:
    looped = """
module attributes {mhlo.num_replicas = 20 : i32} {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %p = stablehlo.constant dense<true> : tensor<i1>
    %n = stablehlo.compare EQ, %x, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q = stablehlo.and %p, %n : tensor<i1>
    %r = "stablehlo.if"(%q) ({
      %s = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<f32>) -> tensor<f32>
      stablehlo.return %s : tensor<f32>
    }, {
      stablehlo.return %x : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    %t = stablehlo.sine %r : tensor<f32>
    return %t : tensor<f32>
  }
}"""
    first, second = spmd.parse(looped), spmd.parse(looped.replace("sine", "cosine"))
    table, inputs = [[first], *[[second]] * 19], [[np.float32(1)]] * 20
    with caplog.at_level(logging.INFO, "spmd"):
        results = spmd.run_parallel(table, None, inputs)
    assert results[0][0] == np.sin(np.float32(20)) and "run as threads" in caplog.text
    with pytest.raises(spmd.CompileError, match=r"stablehlo.if: cannot be stacked: .* its predicate may differ"):
        spmd.run_parallel(table, None, inputs, mode="stacked")


def test_programs_that_do_not_meet_are_an_error() -> None:
    other = spmd.parse(program("sine", "cosine", "dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>"))
    with pytest.raises(spmd.CollectiveError):
        spmd.run_parallel([[FIRST], *[[other]] * 5], None, INPUTS, mode="stacked")


ALL = "replica_groups = dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>"
SUM = f"""<{{{ALL}}}> ({{
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %sum = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %sum : tensor<f32>
    }}) : (tensor<4xf32>) -> tensor<4xf32>"""


def module(body: str, result: str = "4xf32") -> spmd.Module:
    return spmd.parse(f"""
module attributes {{mhlo.num_replicas = 6 : i32}} {{
  func.func @main(%x: tensor<4xf32>) -> tensor<{result}> {{
{body}
    return %y : tensor<{result}>
  }}
}}""")


def looped(own: str, *, turns: int = 3, more: str = "") -> spmd.Module:
    """A loop whose turns sum what `own` makes of each process's value; what is `more` is carried along."""
    return module(f"""
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %n = stablehlo.constant dense<{turns}> : tensor<i32>
    %w:3 = stablehlo.while(%i = %zero, %v = %x, %u = %x) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
      cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        %a = stablehlo.{own} %v : tensor<4xf32>
        %s = "stablehlo.all_reduce"(%a) {SUM}
        %b = stablehlo.subtract %s, %u : tensor<4xf32>
        {more}
        stablehlo.return %j, %b, %s : tensor<i32>, tensor<4xf32>, tensor<4xf32>
      }}
    %y = stablehlo.add %w#1, %w#2 : tensor<4xf32>""")


def branched(own: str, bound: str = "0.0", direction: str = "LT") -> spmd.Module:
    """A branch, chosen by a sum over all processes, in which they communicate."""
    return module(f"""
    %a = stablehlo.{own} %x : tensor<4xf32>
    %s = "stablehlo.all_reduce"(%a) {SUM}
    %f = stablehlo.slice %s [0:1] : (tensor<4xf32>) -> tensor<1xf32>
    %g = stablehlo.reshape %f : (tensor<1xf32>) -> tensor<f32>
    %z = stablehlo.constant dense<{bound}> : tensor<f32>
    %c = stablehlo.compare {direction}, %g, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %y = "stablehlo.if"(%c) ({{
      %p = stablehlo.{own} %s : tensor<4xf32>
      %q = "stablehlo.all_reduce"(%p) {SUM.replace("%l", "%l1").replace("%r:", "%r1:").replace(", %r ", ", %r1 ")}
      stablehlo.return %q : tensor<4xf32>
    }}, {{
      %q = "stablehlo.collective_permute"(%a) <{{source_target_pairs = dense<[[0, 5], [5, 1]]> : tensor<2x2xi64>}}>
        : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %q : tensor<4xf32>
    }}) : (tensor<i1>) -> tensor<4xf32>""")


def transfer(op: str, pairs: str, channel: int = 1) -> str:
    """A send of %x, or a recv of %y."""
    ends = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>, source_target_pairs = {pairs}"
    number = f"{op}{channel}"
    start = f"%t{number} = stablehlo.create_token : !stablehlo.token"
    if op == "send":
        return f"""{start}
    %u{number} = "stablehlo.send"(%x, %t{number}) {{{ends}}} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token"""
    return f"""{start}
    %y, %u{number} = "stablehlo.recv"(%t{number}) {{{ends}}}
      : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)"""


PAIRS = "dense<[[0, 1], [2, 5], [4, 3]]> : tensor<3x2xi64>"
SENDER = module(f"    {transfer('send', PAIRS)}\n    %y = stablehlo.negate %x : tensor<4xf32>")
RECEIVER = module(f"    {transfer('recv', PAIRS)}")
BACK = "dense<[[1, 0], [5, 2], [3, 4]]> : tensor<3x2xi64>"
ASKING = module(f"    {transfer('send', PAIRS)}\n    {transfer('recv', BACK, 2)}")
ANSWERING = module(
    f"""    {transfer("recv", PAIRS)}
    {transfer("send", BACK, 2).replace("%x,", "%y,")}"""
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (looped("sine"), looped("cosine")),
        (looped("sine"), looped("cosine", more="%m = stablehlo.exponential %a : tensor<4xf32>")),
        (looped("sine", turns=0), looped("cosine", turns=0)),
        (branched("sine"), branched("cosine")),
        (branched("sine", "1.0e9"), branched("cosine", "1.0e9")),
        (SENDER, RECEIVER),
        (ASKING, ANSWERING),
    ],
)
def test_programs_that_go_the_same_way_are_stacked(first: spmd.Module, second: spmd.Module) -> None:
    table = [[first if rank % 2 == 0 else second] for rank in range(6)]
    threads = spmd.run_parallel(table, None, INPUTS, mode="threads", reproducible=True)
    stacked = spmd.run_parallel(table, None, INPUTS, mode="stacked", reproducible=True)
    for left, right in zip(threads, stacked, strict=True):
        assert all(same_bits(a, b) for a, b in zip(left, right, strict=True))


def test_who_is_no_target_receives_zeros() -> None:
    few = "dense<[[0, 1]]> : tensor<1x2xi64>"
    sender = module(f"    {transfer('send', few)}\n    %y = stablehlo.negate %x : tensor<4xf32>")
    receiver = module(f"    {transfer('recv', few)}")
    results = spmd.run_parallel([[sender], *[[receiver]] * 5], None, INPUTS, mode="stacked")
    assert results[1][0].tolist() == INPUTS[0][0].tolist() and all(not np.any(results[rank][0]) for rank in range(2, 6))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (looped("sine"), looped("sine", turns=4), "stablehlo.while: .* its predicate may be another than that of"),
        (branched("sine"), branched("sine", direction="GT"), "stablehlo.if: .* its predicate may be another than"),
        (looped("sine"), branched("sine"), "in different control flow: process 1 is at stablehlo.all_reduce"),
        (SENDER, module("    %y = stablehlo.sine %x : tensor<4xf32>"), "no process receives from channel 1"),
        (module("    %y = stablehlo.sine %x : tensor<4xf32>"), RECEIVER, "nothing has been sent to it"),
    ],
)
def test_programs_that_may_not_meet_are_told(first: spmd.Module, second: spmd.Module, said: str) -> None:
    table = [[first if rank % 2 == 0 else second] for rank in range(6)]
    with pytest.raises(spmd.CompileError, match=said):
        spmd.run_parallel(table, None, INPUTS, mode="stacked")


def test_programs_that_send_other_types_are_an_error() -> None:
    other = spmd.parse(str(RECEIVER).replace("tensor<4xf32>", "tensor<4xi32>"))
    table = [[SENDER if rank % 2 == 0 else other] for rank in range(6)]
    inputs = [x if rank % 2 == 0 else [x[0].astype(np.int32)] for rank, x in enumerate(INPUTS)]
    with pytest.raises(spmd.CollectiveError, match=r"\(tensor<4xi32>\) is received where .* sends \(tensor<4xf32>\)"):
        spmd.run_parallel(table, None, inputs, mode="stacked")


@pytest.mark.parametrize("first", some_slow(range(0, 30, 10), 1))
def test_drawn_programs_give_what_their_threads_give(first: int) -> None:
    """They communicate in groups, some of them in loops that the other programs do not have, or have ended before."""
    for seed in range(first, first + 10):
        table, inputs, texts = draw_programs(seed)
        threads = spmd.run_parallel(table, None, inputs, mode="threads", timeout=120)
        stacked = spmd.run_parallel(table, None, inputs, mode="stacked")
        for left, right in zip(threads, stacked, strict=True):
            assert all(same_bits(a, b) for a, b in zip(left, right, strict=True)), f"seed {seed}\n{texts}"


def test_a_loop_that_waits_for_a_program_that_has_ended_is_not_called_a_deadlock() -> None:
    """Its turns are counted when it runs: it may have none. A collective outside of loops does wait."""
    looped = """
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32> cond {
        %p = stablehlo.compare LT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %w = "stablehlo.collective_broadcast"(%v) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}>
          : (tensor<4xf32>) -> tensor<4xf32>
        stablehlo.return %i, %w : tensor<i32>, tensor<4xf32>
      }
      return %r#1 : tensor<4xf32>"""
    straight = """
      %w = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}>
        : (tensor<4xf32>) -> tensor<4xf32>
      return %w : tensor<4xf32>"""
    quiet = "return %x : tensor<4xf32>"

    def module(body: str) -> spmd.Module:
        text = f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ {body} }}"
        return spmd.parse(f"module attributes {{mhlo.num_replicas = 3 : i32}} {{ {text} }}")

    inputs = [[np.zeros(4, np.float32)]] * 3
    with pytest.raises(spmd.CompileError, match=r"while: cannot be stacked: .* process 2, whose program has ended"):
        spmd.run_parallel([[module(looped)], [module(looped)], [module(quiet)]], None, inputs, mode="stacked")
    with pytest.raises(spmd.CollectiveError, match="process 2: has ended"):
        spmd.run_parallel([[module(straight)], [module(straight)], [module(quiet)]], None, inputs, mode="stacked")
