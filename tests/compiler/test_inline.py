"""Calls: chains as long as there are functions, programs that would be endless written out, and what is refused."""

import numpy as np
import pytest

import spmd
from spmd.compiler.transforms.inline import inline
from spmd.ir import Op

TYPE = "tensor<2xf32>"
ONES = np.ones(2, np.float32)


def calls(depth: int, times: int) -> str:
    """Functions of which each calls the next `times` times; the last one adds 1 to its argument."""
    functions = []
    for level in range(depth):
        name = "@main" if level == 0 else f"private @f{level}"
        body = "\n".join(f"%{i + 1} = call @f{level + 1}(%{i}) : ({TYPE}) -> {TYPE}" for i in range(times))
        functions.append(f"func.func {name}(%0: {TYPE}) -> {TYPE} {{\n{body}\nreturn %{times} : {TYPE} }}")
    last = f"%c = stablehlo.constant dense<1.0> : {TYPE}\n%1 = stablehlo.add %0, %c : {TYPE}\nreturn %1 : {TYPE}"
    functions.append(f"func.func private @f{depth}(%0: {TYPE}) -> {TYPE} {{ {last} }}")
    return "\n".join(functions)


def branches(depth: int) -> str:
    """Functions of which each calls the next one inside a branch."""
    signature = f"(%p: tensor<i1>, %x: {TYPE}) -> {TYPE}"
    functions = []
    for level in range(depth):
        name = "@main" if level == 0 else f"private @f{level}"
        functions.append(f"""func.func {name}{signature} {{
          %0 = "stablehlo.if"(%p) ({{
            %1 = func.call @f{level + 1}(%p, %x) : (tensor<i1>, {TYPE}) -> {TYPE}
            stablehlo.return %1 : {TYPE}
          }}, {{ stablehlo.return %x : {TYPE} }}) : (tensor<i1>) -> {TYPE}
          return %0 : {TYPE} }}""")
    add = f"%0 = stablehlo.add %x, %x : {TYPE}\nreturn %0 : {TYPE}"
    return "\n".join([*functions, f"func.func private @f{depth}{signature} {{ {add} }}"])


@pytest.mark.parametrize("depth", [1, 600, 2000])
def test_a_chain_of_calls_is_as_long_as_it_likes(depth: int) -> None:
    assert spmd.compile(spmd.parse(calls(depth, 1)))(ONES)[0].tolist() == [2, 2]


@pytest.mark.parametrize("depth", [3, 12])
def test_every_call_is_its_own(depth: int) -> None:
    assert spmd.compile(spmd.parse(calls(depth, 2)))(ONES)[0].tolist() == [1 + 2**depth] * 2


def test_what_is_called_too_often_is_compiled_once_and_called() -> None:
    """17 levels of two calls each are 131,072 additions: more than are written out."""
    module = spmd.parse(calls(17, 2))
    flat = inline(module, module.function("main"))
    assert {op.name for op in flat.walk()} >= {"func.call"} and len(list(flat.walk())) < 2000
    assert spmd.compile(module)(ONES)[0].tolist() == [1 + 2**17] * 2


@pytest.mark.parametrize("depth", [40, 300])
def test_an_endless_program_compiles(depth: int) -> None:
    assert spmd.compile(spmd.parse(calls(depth, 2))).in_types[0].shape == (2,)


def test_calls_that_stay_calls_and_nest_too_deep_are_refused_before_any_is_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Op, "clone", None)
    with pytest.raises(spmd.CompileError, match=r"deep\.mlir:1:1.*calls of functions too large .* more than 100 deep"):
        spmd.compile(spmd.parse(calls(3000, 2), "deep.mlir"))


def test_what_has_to_be_written_out_and_cannot_be_is_refused() -> None:
    module = spmd.parse(calls(40, 2), "twice.mlir")
    with pytest.raises(spmd.CompileError, match=r"twice\.mlir:1:1.*ops after inlining; at most 100,000"):
        inline(module, module.function("main"), whole=True)


def test_branches_nest_through_calls() -> None:
    run = spmd.compile(spmd.parse(branches(60)))
    assert run(np.array(True), ONES)[0].tolist() == [2, 2]
    assert run(np.array(False), ONES)[0].tolist() == [1, 1]


@pytest.mark.parametrize("depth", [101, 600])
def test_branches_that_nest_too_deep_are_refused_at_their_place(depth: int) -> None:
    with pytest.raises(spmd.CompileError, match=r"deep\.mlir:\d+:\d+: stablehlo\.if: regions nest more than 100 deep"):
        spmd.compile(spmd.parse(branches(depth), "deep.mlir"))


def test_recursion_names_its_cycle() -> None:
    text = calls(3, 1).replace("call @f3", "call @f1")
    with pytest.raises(spmd.CompileError, match="recursive call: @main -> @f1 -> @f2 -> @f1"):
        spmd.compile(spmd.parse(text))


def test_blocks_that_jump_are_refused() -> None:
    text = 'func.func @main() { "cf.br"()[^bb1] : () -> ()\n^bb1:\n  return }'
    with pytest.raises(
        spmd.CompileError, match=r"<string>:1:1.*2 blocks; only functions with one block can be compiled"
    ):
        spmd.compile(spmd.parse(text))
