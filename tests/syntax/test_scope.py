"""Values by name: families of numbered names give every name its own value, whatever the order and the gaps."""

from hypothesis import given
from hypothesis import strategies as st

import spmd
from spmd.ir import Value
from spmd.syntax.scope import Scope
from spmd.types import F32

_LETTERS = st.sampled_from(["", *"abc", *(first + second for first in "abc" for second in "abc")])
_NUMBERS = st.one_of(st.just(""), st.integers(0, 9999).map(str), st.sampled_from(["00", "01"]))
_DIGITS = st.sampled_from(["", *"0123456789", *(f"{number:02}" for number in range(100))])
_PARTS = st.sampled_from(["", "#0", "#1", "#2", "#3"])
#: As the expression `%[a-c]{0,2}(0|[1-9][0-9]{0,3}|00|01)?[a-c]{0,2}[0-9]{0,2}(#[0-3])?` says.
NAMES = st.tuples(st.just("%"), _LETTERS, _NUMBERS, _LETTERS, _DIGITS, _PARTS).map("".join)


@given(st.lists(st.tuples(NAMES, st.booleans())))
def test_a_scope_is_a_dictionary_within_another(names: list[tuple[str, bool]]) -> None:
    outer = Scope()
    inner = Scope(outer)
    known: dict[str, Value] = {}
    for name, is_inner in sorted(names, key=lambda entry: entry[1]):
        value = Value(F32)
        assert (inner if is_inner else outer).add(name, value) is (name not in known)
        known.setdefault(name, value)
    assert all(inner.get(name) is value for name, value in known.items())
    assert all(inner.get(name) is known.get(name) for name in ("%0", "%7", "%a", "%a1", "%1a", "%01", "%a1#0"))


def test_names_are_found_again_in_the_text() -> None:
    text = """func.func @f(%x: tensor<f32>) -> tensor<f32> {
      %a_7 = // a comment
        stablehlo.add %x, %x : tensor<f32>
      %1:2 = "stablehlo.reduce"(%a_7, %a_7, %x, %x) <{dimensions = array<i64>}> ({
        ^bb0(%p: tensor<f32>, %q: tensor<f32>, %r: tensor<f32>, %s: tensor<f32>):
          stablehlo.return %p, %q : tensor<f32>, tensor<f32>
      }) : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
      %c.d = stablehlo.sine %1#1 : tensor<f32>
      return %c.d : tensor<f32>
    }"""
    ops = spmd.parse(text).functions[0].body.ops
    assert [[value.name_hint for value in op.results] for op in ops] == [["a_7"], ["1#0", "1#1"], ["c.d"], []]
    assert [op.location.line for op in ops] == [3, 4, 8, 9]
    ops[2].result.name_hint = "e"
    copy = ops[2].clone(ops[2].operands)
    assert [value.name_hint for value in (ops[2].result, copy.result, ops[0].clone(ops[0].operands).result)] == [
        "e", "e", "a_7"
    ]  # fmt: skip


def test_equal_reducers_are_judged_where_they_are_applied() -> None:
    line = "%{} = stablehlo.reduce(%x init: %i) applies stablehlo.or across dimensions = [0] : {}"
    types = "(tensor<4xf32>, tensor<f32>) -> tensor<f32>"
    text = f"""func.func @f(%x: tensor<4xf32>, %i: tensor<f32>) {{
      {line.format(0, types)}
      {line.format(1, types)}
      return
    }}"""
    try:
        spmd.parse(text)
    except spmd.VerificationError as error:
        assert {diagnostic.location.line for diagnostic in error.diagnostics} == {2, 3}
    else:
        raise AssertionError("a bitwise or of floats is refused")
