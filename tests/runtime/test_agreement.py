"""What the texts of different programs show of their agreement."""

import numpy as np
import pytest

import spmd
from spmd.runtime.agreement import ExpectedCollective, ProcessTrace, disagreement, trace

A, B = (
    ExpectedCollective("all_reduce of 1 float32", "a:1", (0, 1)),
    ExpectedCollective("all_gather of 1 float32", "a:2", (0, 1)),
)
THREE = ExpectedCollective("barrier", "a:3", (0, 1, 2))


def shift(source: int | None, what: str = "collective_permute") -> ExpectedCollective:
    return ExpectedCollective(what, "a:4", (), source)


def play(*events: list[ExpectedCollective]) -> str | None:
    return disagreement([ProcessTrace(tuple(trace)) for trace in events])


def test_programs_that_come_to_the_same_agree() -> None:
    assert play([A, B, THREE], [A, B, THREE], [THREE]) is None
    elsewhere = ExpectedCollective(A.what, "b:9", A.members)
    assert play([A], [elsewhere]) is None


def test_another_order_another_group_and_an_end_too_early_are_disagreements() -> None:
    crossed = str(play([A, B], [B, A]))
    assert "process 0: all_reduce of 1 float32 among [0, 1] at a:1\n  process 1: all_gather" in crossed
    assert "process 1: has ended" in str(play([A], []))
    other = ExpectedCollective(A.what, "b:1", (1, 0))
    assert "among [1, 0] at b:1" in str(play([A], [other]))


def test_groups_that_wait_for_each_other_in_a_circle() -> None:
    pairs = [ExpectedCollective("barrier", f"{i}", tuple(sorted((i, (i + 1) % 3)))) for i in range(3)]
    assert play([pairs[0], pairs[2]], [pairs[1], pairs[0]], [pairs[2], pairs[1]]) is not None
    assert play([pairs[0], pairs[2]], [pairs[0], pairs[1]], [pairs[1], pairs[2]]) is None


def test_permutes_wait_for_their_sources_alone() -> None:
    assert play([shift(1), A], [shift(0), A]) is None
    assert play([shift(None), A], [A, shift(0)]) is None
    assert play([A, shift(None)], [shift(0), A]) is not None
    assert play([shift(1)], [shift(0, "collective_permute of another shape")]) is not None


def test_what_control_flow_hides_is_not_judged() -> None:
    assert disagreement([ProcessTrace((A,)), ProcessTrace((), known=False)]) is None
    assert disagreement([ProcessTrace((A,)), ProcessTrace((B,), known=False)]) is not None


PROGRAM = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<GROUPS> : tensor<1x2xi64>}
    : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def test_different_programs_are_compared_before_they_run() -> None:
    grid, inputs = spmd.ProcessGrid(2, 1), [(np.ones(2, np.float32),)] * 2
    one, other, alike = (
        spmd.parse(PROGRAM.replace("GROUPS", groups), name=name)
        for name, groups in (("one", "[[0, 1]]"), ("other", "[[1, 0]]"), ("alike", "[[0, 1]]"))
    )
    with pytest.raises(spmd.CollectiveError) as caught:
        spmd.run_parallel([[one], [other]], grid, inputs)
    assert "process 0: all_reduce add of 2 float32 among [0, 1] at one:2:8" in str(caught.value)
    assert "process 1: all_reduce add of 2 float32 among [1, 0] at other:2:8" in str(caught.value)
    assert "deadlock" not in str(caught.value)
    for (total,) in spmd.run_parallel([[one], [alike]], grid, inputs):
        np.testing.assert_array_equal(total, [2, 2])


def too_large_to_inline(groups: str, where: str) -> str:
    """A program whose collective stands in a function that stays one, as what it calls is 2^17 additions."""
    chain = "\n".join(
        f"""func.func private @f{level}(%x: tensor<2xf32>) -> tensor<2xf32> {{
          %0 = call @f{level + 1}(%x) : (tensor<2xf32>) -> tensor<2xf32>
          %1 = call @f{level + 1}(%0) : (tensor<2xf32>) -> tensor<2xf32>
          return %1 : tensor<2xf32> }}"""
        for level in range(17)
    )
    then = "%1 = call @f0(%0) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %1"
    main = PROGRAM.replace("GROUPS", groups).replace("return %0", then)
    last = "%0 = stablehlo.add %x, %x : tensor<2xf32>\nreturn %0 : tensor<2xf32>"
    call = {
        "call": "%0 = call @big(%x) : (tensor<2xf32>) -> tensor<2xf32>",
        "branch": """%z = stablehlo.slice %x [0:1] : (tensor<2xf32>) -> tensor<1xf32>
          %s = stablehlo.reshape %z : (tensor<1xf32>) -> tensor<f32>
          %p = stablehlo.is_finite %s : (tensor<f32>) -> tensor<i1>
          %0 = "stablehlo.if"(%p) ({
            %1 = func.call @big(%x) : (tensor<2xf32>) -> tensor<2xf32>
            stablehlo.return %1 : tensor<2xf32>
          }, { stablehlo.return %x : tensor<2xf32> }) : (tensor<i1>) -> tensor<2xf32>""",
    }[where]
    return f"""{main.replace("func.func @main", "func.func private @big")}
      {chain}
      func.func private @f17(%x: tensor<2xf32>) -> tensor<2xf32> {{ {last} }}
      func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{ {call} return %0 : tensor<2xf32> }}"""


def traced(text: str) -> ProcessTrace:
    return trace(spmd.compile(spmd.parse(text), spmd.ProcessGrid(2, 1)), 0)


def test_collectives_of_functions_that_stay_functions_count() -> None:
    one, other = (traced(too_large_to_inline(groups, "call")) for groups in ("[[0, 1]]", "[[1, 0]]"))
    assert [event.members for event in one.events] == [(0, 1)] and one.known
    assert disagreement([one, other]) is not None and disagreement([one, one]) is None


def test_calls_in_control_flow_are_not_judged() -> None:
    assert traced(too_large_to_inline("[[0, 1]]", "branch")) == ProcessTrace((), known=False)
