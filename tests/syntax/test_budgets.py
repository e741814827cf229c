"""Texts that are short and mean much, or nest without end: linear time and memory, or an error at a place."""

import pytest

import spmd
from spmd.syntax import difference
from spmd.types import F32, TensorType, TupleType
from tests.measuring import with_peak_memory

SCALAR = TensorType((), F32)


def doubled(levels: int) -> str:
    aliases = [f"!t{i + 1} = tuple<!t{i}, !t{i}>" for i in range(levels)]
    top = f"!t{levels}"
    body = f"func.func @main(%x: {top}) -> {top} {{ return %x : {top} }}"
    return "\n".join(["!t0 = tuple<tensor<f32>, tensor<f32>>", *aliases, body])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("levels", [1, 15, 20, 61])
@pytest.mark.parametrize("generic", [False, True])
def test_shared_types_are_printed_once(levels: int, generic: bool) -> None:
    module = spmd.parse(doubled(levels))
    text = module.to_string(generic=generic)
    assert len(text) < 3_000_000
    assert difference(module, spmd.parse(text)) is None
    assert len(repr(module)) < 3_000_000


def test_a_type_of_many_parts_is_told_by_their_number() -> None:
    nested: spmd.ir.Type = SCALAR  # type: ignore[name-defined]
    for _ in range(300):
        nested = TupleType((nested, nested))
    assert str(nested) == "(a type of 2^300 parts or more, 301 deep)"
    assert str(TupleType((SCALAR,) * 1000)).count("tensor<f32>") == 1000


def test_nobody_hands_over_arguments_without_end() -> None:
    with pytest.raises(spmd.CompileError, match=r"argument 0 of @main is \(a type of 2\^41 parts"):
        spmd.compile(spmd.parse(doubled(40)))


def test_attributes_that_double_are_refused() -> None:
    aliases = "\n".join(f"#a{i + 1} = [#a{i}, #a{i}]" for i in range(40))
    with pytest.raises(spmd.ParseError, match="alias '#a17' is an attribute of too many parts"):
        spmd.parse(f"#a0 = [1]\n{aliases}\nmodule attributes {{x.y = #a40}} {{}}")
    aliases = "\n".join(f"#a{i + 1} = [#a{i}]" for i in range(4000))
    with pytest.raises(spmd.ParseError, match="or nested too deep"):
        spmd.parse(f"#a0 = [1]\n{aliases}\nmodule attributes {{x.y = #a4000}} {{}}")


@pytest.mark.parametrize("count", [100_000, pytest.param(300_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("escape", ["\\\\", '\\"', "\\n", "\\22", "\\t\\n"])
def test_strings_of_escapes_take_memory_in_proportion(escape: str, count: int) -> None:
    text = f'module attributes {{a.b = "{escape * count}"}} {{}}'
    module, used = with_peak_memory(lambda: spmd.parse(text))
    data = {"\\\\": b"\\", '\\"': b'"', "\\n": b"\n", "\\22": b'"', "\\t\\n": b"\t\n"}[escape]
    assert module.discardable["a.b"].data == data * count  # type: ignore[attr-defined]
    assert used < 64 * len(text)
    assert difference(module, spmd.parse(str(module))) is None


@pytest.mark.parametrize("text", ['"a\\qb"', '"\\"', '"\\2"', '"\\\\\\"'])
def test_escapes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(spmd.ParseError, match="<string>:1:"):
        spmd.parse(f"module attributes {{a.b = {text}}} {{}}")


def nested_types(depth: int) -> str:
    type_ = "tuple<" * depth + "tensor<f32>" + ">" * depth
    return f"func.func @main(%x: {type_}) -> {type_} {{ return %x : {type_} }}"


def aliased_types(depth: int) -> str:
    aliases = "\n".join(f"!t{i + 1} = tuple<!t{i}>" for i in range(depth))
    return f"!t0 = tensor<f32>\n{aliases}\nfunc.func @main(%x: !t{depth}) -> !t{depth} {{ return %x : !t{depth} }}"


def regions(depth: int) -> str:
    opened = "".join(f'%r{i} = "stablehlo.if"(%p) ({{\n' for i in range(depth))
    closed = "".join(
        f"stablehlo.return {'%x' if i == depth - 1 else f'%r{i + 1}'} : tensor<f32> }}, "
        "{ stablehlo.return %x : tensor<f32> }) : (tensor<i1>) -> tensor<f32>\n"
        for i in reversed(range(depth))
    )
    body = f"{opened}{closed}return %r0 : tensor<f32>"
    return f"func.func @main(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {{\n{body} }}"


@pytest.mark.parametrize("make", [nested_types, aliased_types, regions])
@pytest.mark.parametrize("depth", [65, 1000, 20_000])
def test_what_nests_too_deep_is_told_at_its_place(make, depth: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(spmd.ParseError, match=r"deep\.mlir:\d+:\d+: .*(nest|deep)"):
        spmd.parse(make(depth), "deep.mlir")


@pytest.mark.parametrize("make", [nested_types, aliased_types, regions])
def test_what_nests_not_too_deep_is_read_and_printed(make) -> None:  # type: ignore[no-untyped-def]
    module = spmd.parse(make(58))
    assert difference(module, spmd.parse(str(module))) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"builtin.module"() ({\n^bb0:\n^bb1:\n}) : () -> ()', "a module must have one block, got 2"),
        ('"builtin.module"() ({}) : () -> ()', "a module must have one block, got 0"),
    ],
)
def test_a_module_is_one_block(text: str, words: str) -> None:
    with pytest.raises(spmd.VerificationError, match=f"<string>:1:1: builtin.module: {words}"):
        spmd.parse(text)


def hlo(line: str) -> str:
    return f"HloModule m\n\nENTRY main {{\n  ROOT x = {line}\n}}\n"


@pytest.mark.parametrize(
    "line",
    [
        "(" * 100_000 + "f32[2]" + ")" * 100_000 + " parameter(0)",
        "f32[18446744073709551617] parameter(0)",
        "f32[9223372036854775808] parameter(0)",
        f"f32[{'9' * 5000}] parameter(0)",
        "f32[\u0662] parameter(0)",
        "f32[2,] parameter(0)",
        "f32[2,2] constant({{1,2,3},{4}})",
        "f32[2,2] constant({1,2,3,4})",
        "f32[4] constant({{1,2},{3,4}})",
        "f32[2] constant({1,2}})",
    ],
    ids=lambda line: line[:24],
)
def test_hlo_that_is_wrong_is_told_at_its_place(line: str) -> None:
    with pytest.raises(spmd.ParseError, match=r"m\.hlo:\d+:\d+"):
        spmd.parse(hlo(line), "m.hlo")
