"""What is wrong with the communication of a program is found where it is; lawful programs that look alike pass."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

import spmd
from spmd.analysis.varying.check import check_processes, check_programs
from spmd.analysis.varying.findings import FindingKind

SUM = """({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32> })"""


def all_reduce(operand: str, groups: str = "[[0, 1, 2, 3]]", type: str = "tensor<4xf32>") -> str:
    rows = groups.count("[") - 1
    shape = f"{rows}x{(groups.count(',') + 1) // rows}"
    given = f"<{{replica_groups = dense<{groups}> : tensor<{shape}xi64>}}>"
    return f'"stablehlo.all_reduce"({operand}) {given} {SUM} : ({type}) -> {type}'


def program(body: str, arguments: str = "%w: tensor<4xf32>, %x: tensor<4xf32>", result: str = "%r") -> spmd.Module:
    text = f"func.func @main({arguments}) -> tensor<4xf32> {{\n{body}\nreturn {result} : tensor<4xf32>\n}}"
    return spmd.parse(text, name="step.mlir")


def found(
    module: spmd.Module, replicated: Sequence[int] = (), results: Sequence[int] = ()
) -> list[tuple[FindingKind, bool, int]]:
    findings = check_processes(
        module, spmd.ProcessGrid(4, 1), replicated_arguments=replicated, replicated_results=results
    )
    return [(each.kind, each.certain, each.diagnostic.location.line) for each in findings]


ID = "%id = stablehlo.replica_id : tensor<ui32>\n%two = stablehlo.constant dense<2> : tensor<ui32>"
LOW = f"{ID}\n%low = stablehlo.compare LT, %id, %two : (tensor<ui32>, tensor<ui32>) -> tensor<i1>"


def branches(predicate: str, then: str, otherwise: str) -> str:
    return f"""%r = "stablehlo.if"({predicate}) ({{
      {then}
      stablehlo.return %t : tensor<4xf32>
    }}, {{
      {otherwise}
      stablehlo.return %e : tensor<4xf32>
    }}) : (tensor<i1>) -> tensor<4xf32>"""


KEEP = "%e = stablehlo.negate %x : tensor<4xf32>"


def test_a_branch_of_some_members_of_a_group() -> None:
    module = program(f"{LOW}\n{branches('%low', '%t = ' + all_reduce('%x'), KEEP)}")
    assert found(module) == [(FindingKind.DIVERGENT_COLLECTIVE, True, 6)]
    message = str(check_processes(module, spmd.ProcessGrid(4, 1))[0])
    assert "process 0 waits here for process 2" in message and "stablehlo.replica_id at step.mlir:2" in message


def test_a_branch_of_whole_groups() -> None:
    module = program(f"{LOW}\n{branches('%low', '%t = ' + all_reduce('%x', '[[0, 1], [2, 3]]'), KEEP)}")
    assert found(module) == []


def test_both_branches_have_the_same_communication() -> None:
    module = program(f"{LOW}\n{branches('%low', '%t = ' + all_reduce('%x'), '%e = ' + all_reduce('%w'))}")
    assert found(module) == []


def test_branches_whose_groups_disagree() -> None:
    then, otherwise = f"%t = {all_reduce('%x', '[[0, 1], [2, 3]]')}", f"%e = {all_reduce('%w', '[[0, 2], [1, 3]]')}"
    assert found(program(f"{LOW}\n{branches('%low', then, otherwise)}"))[0][:2] == (
        FindingKind.DIVERGENT_COLLECTIVE,
        True,
    )


def test_a_predicate_of_an_argument_is_suspected_until_it_is_said_to_be_the_same() -> None:
    body = branches("%p", f"%t = {all_reduce('%x')}", KEEP)
    module = program(body, "%p: tensor<i1>, %x: tensor<4xf32>")
    assert found(module) == [(FindingKind.DIVERGENT_COLLECTIVE, False, 3)]
    assert found(module, replicated=[0]) == []


def loop(bound: str, inside: str) -> str:
    return f"""%zero = stablehlo.constant dense<0> : tensor<ui32>
    %one = stablehlo.constant dense<1> : tensor<ui32>
    %i_end, %r = stablehlo.while(%i = %zero, %y = %x) : tensor<ui32>, tensor<4xf32>
    cond {{
      %go = stablehlo.compare LT, %i, {bound} : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    }} do {{
      %next = stablehlo.add %i, %one : tensor<ui32>
      %s = {inside}
      stablehlo.return %next, %s : tensor<ui32>, tensor<4xf32>
    }}"""


def test_a_loop_whose_length_differs() -> None:
    assert found(program(f"{ID}\n{loop('%id', all_reduce('%y'))}")) == [(FindingKind.DIVERGENT_COLLECTIVE, True, 12)]
    assert found(program(f"{ID}\n{loop('%two', all_reduce('%y'))}")) == []
    assert found(program(f"{ID}\n{loop('%id', 'stablehlo.negate %y : tensor<4xf32>')}")) == []


def test_the_forgotten_mean() -> None:
    step = "%r = stablehlo.subtract %w, %x : tensor<4xf32>"
    assert found(program(step), replicated=[0], results=[0]) == [(FindingKind.VARYING_RESULT, True, 2)]
    message = str(
        check_processes(program(step), spmd.ProcessGrid(4, 1), replicated_arguments=[0], replicated_results=[0])[0]
    )
    assert "argument 1 (%x)" in message
    reduced = f"%g = {all_reduce('%x')}\n%r = stablehlo.subtract %w, %g : tensor<4xf32>"
    assert found(program(reduced), replicated=[0], results=[0]) == []


def test_a_carried_state_is_held_for_the_same() -> None:
    arguments = "%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<4xf32>"
    module = program("%r = stablehlo.subtract %w, %x : tensor<4xf32>", arguments)
    assert found(module, replicated=[0]) == [(FindingKind.VARYING_RESULT, True, 2)]


def test_a_sum_of_what_is_the_same() -> None:
    twice = f"%g = {all_reduce('%x')}\n%r = {all_reduce('%g')}"
    assert [kind for kind, _, _ in found(program(twice))] == [FindingKind.REPEATED_SUM]
    mean = """%n = stablehlo.constant dense<4.0> : tensor<4xf32>
    %r = stablehlo.divide %h, %n : tensor<4xf32>"""
    assert found(program(f"%g = {all_reduce('%x')}\n%h = {all_reduce('%g')}\n{mean}")) == []
    term = f"%t = stablehlo.add %w, %x : tensor<4xf32>\n%r = {all_reduce('%t')}"
    assert [kind for kind, _, _ in found(program(term), replicated=[0])] == [FindingKind.REPEATED_SUM]
    assert found(program(term)) == []


def test_a_line_that_is_silenced() -> None:
    twice = f"%g = {all_reduce('%x')}\n%r = "
    quiet = all_reduce("%g").replace("({", "({ // spmd: ignore[repeated-sum]\n", 1)
    assert found(program(twice + quiet)) == []
    other = all_reduce("%g").replace("({", "({ // spmd: ignore[same-random]\n", 1)
    assert len(found(program(twice + other))) == 1


KEY = "%key: tensor<2xui64>, %x: tensor<4xf32>"


def drawn(key: str, data: str) -> str:
    types = "(tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)"
    return f"""%next, %bits = stablehlo.rng_bit_generator {key}, algorithm = DEFAULT : {types}
    %half = stablehlo.constant dense<2147483648> : tensor<4xui32>
    %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
    %keep = stablehlo.compare LT, %bits, %half : (tensor<4xui32>, tensor<4xui32>) -> tensor<4xi1>
    %r = stablehlo.select %keep, {data}, %zeros : tensor<4xi1>, tensor<4xf32>"""


def test_random_numbers_and_what_they_are_for() -> None:
    assert [kind for kind, _, _ in found(program(drawn("%key", "%x"), KEY), replicated=[0])] == [
        FindingKind.SAME_RANDOM
    ]
    assert [kind for kind, _, _ in found(program(drawn("%key", "%x"), KEY), replicated=[1])] == [
        FindingKind.DIFFERENT_RANDOM
    ]
    assert found(program(drawn("%key", "%x"), KEY), replicated=[0, 1]) == []
    assert found(program(drawn("%key", "%x"), KEY)) == []


def transfer(kind: str, channel: int, source: int, target: int) -> str:
    handle = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"
    pairs = f"source_target_pairs = dense<[[{source}, {target}]]> : tensor<1x2xi64>"
    if kind == "recv":
        types = "(!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)"
        return f'%got{channel}, %r{channel} = "stablehlo.recv"(%t) <{{{handle}, {pairs}}}> : {types}'
    types = "(tensor<4xf32>, !stablehlo.token) -> !stablehlo.token"
    return f'%s{channel} = "stablehlo.send"(%x, %t) <{{{handle}, {pairs}}}> : {types}'


def stage(*steps: str) -> spmd.Module:
    body = "\n".join(("%t = stablehlo.create_token : !stablehlo.token", *steps))
    return program(body, result="%x")


def test_programs_that_wait_for_each_other() -> None:
    first = stage(transfer("recv", 2, 1, 0), transfer("send", 1, 0, 1))
    second = stage(transfer("recv", 1, 0, 1), transfer("send", 2, 1, 0))
    findings = check_programs([("a.mlir", first), ("b.mlir", second)], [1, 1])
    assert [(each.kind, each.certain) for each in findings] == [(FindingKind.CHANNEL, True)]
    assert "process 1 (b.mlir) waits at stablehlo.recv" in str(findings[0])
    second = stage(transfer("send", 2, 1, 0), transfer("recv", 1, 0, 1))
    assert check_programs([("a.mlir", first), ("b.mlir", second)], [1, 1]) == []


def test_a_message_that_nobody_receives() -> None:
    first = stage(transfer("send", 1, 0, 1))
    findings = check_programs([("a.mlir", first), ("b.mlir", stage())], [1, 1])
    assert [(each.kind, each.certain) for each in findings] == [(FindingKind.CHANNEL, True)]


def test_two_messages_on_one_channel_that_no_token_orders() -> None:
    twice = transfer("send", 1, 0, 1), transfer("send", 1, 0, 1).replace("%s1 =", "%other =")
    received = transfer("recv", 1, 0, 1), transfer("recv", 1, 0, 1).replace("%got1, %r1 =", "%more, %other =")
    findings = check_programs([("a.mlir", stage(*twice)), ("b.mlir", stage(*received))], [1, 1])
    assert [(each.kind, each.certain, each.op.name) for each in findings] == [
        (FindingKind.CHANNEL, False, "stablehlo.send"), (FindingKind.CHANNEL, False, "stablehlo.recv")
    ]  # fmt: skip
    assert "this op is not ordered after stablehlo.send at " in str(findings[0])
    assert "which also sends on channel 1" in str(findings[0])
    ordered = twice[0], twice[1].replace("%x, %t", "%x, %s1")
    taken = received[0], received[1].replace("(%t)", "(%r1)")
    assert check_programs([("a.mlir", stage(*ordered)), ("b.mlir", stage(*taken))], [1, 1]) == []


@pytest.mark.parametrize("count", [2, 512])
def test_a_pipeline_of_different_programs(count: int) -> None:
    stages = []
    for rank in range(count):
        steps = [transfer("recv", rank, rank - 1, rank)] if rank else []
        steps += [transfer("send", rank + 1, rank, rank + 1)] if rank + 1 < count else []
        stages.append(stage(*steps))
    names = [(f"stage{rank}", module) for rank, module in enumerate(stages)]
    assert check_programs(names, [1] * count) == []
    assert all(one is not other for one, other in pairwise(stages))


def test_programs_that_come_to_different_collectives() -> None:
    first, second = (
        program(f"%r = {all_reduce('%x', '[[0, 1]]')}"),
        program(f"%r = {all_reduce('%x', '[[0, 1]]').replace('.add', '.maximum')}"),
    )
    findings = check_programs([("a.mlir", first), ("b.mlir", second)], [1, 1])
    assert [each.kind for each in findings] == [FindingKind.DIVERGENT_COLLECTIVE]
    assert "their reductions are add and maximum" in str(findings[0])
