"""Tokens and their places: whatever the text is cut into, each token is found again where it stands."""

import random

from spmd.errors import Source
from spmd.syntax import parse
from spmd.syntax.lexer import END, Tokens, split_parts

TEXT = """
func.func @f(%a: tensor<2x3xf32>) -> (tensor<2x3xf32> {x = [1, 2]}) { // a comment with "quotes"
  %0:2 = "a.b"(%a) : (tensor<2x3xf32>) -> (tensor<f32>, tensor<f32>) loc(#loc1)
  %1 = stablehlo.constant dense<[1.0, -2.5e-3]> : tensor<2xf32>
  %2 = stablehlo.constant dense<"0x0011"> : tensor<1xi16>
  return %a : tensor<2x3xf32>
}
"""


def all_tokens(tokens: Tokens) -> list[tuple[int, str]]:
    """Every token with the number it has, taken a few at a time."""
    positions_and_tokens = []
    position = tokens.fill(0)
    while True:
        if len(tokens.list) - position < 6 and not tokens.at_end:
            position = tokens.fill(position)
        if not tokens.list[position]:
            return positions_and_tokens
        positions_and_tokens.append((tokens.base + position, tokens.list[position]))
        position += 1


def test_a_token_stands_where_its_number_says() -> None:
    text = TEXT * 20
    for piece in (40, 100, 1000, 10**6):
        tokens = Tokens(Source("x", text), 8, piece)
        for number, token in all_tokens(tokens):
            start = tokens.offset(number)
            assert text[start : start + len(token)] == token


def test_the_parts_of_split_tokens_are_found_too() -> None:
    text = TEXT * 5
    chance = random.Random(0)
    for piece in (60, 10**6):
        tokens = Tokens(Source("x", text), 8, piece)
        position = tokens.fill(0)
        while tokens.list[position] or not tokens.at_end:
            if len(tokens.list) - position < 12:
                position = tokens.fill(position)
            if chance.random() < 0.5:
                tokens.split(position)
            start = tokens.offset(tokens.base + position)
            assert text[start : start + len(tokens.list[position])] == tokens.list[position]
            position += 1


def test_what_appears_as_one_thing_is_one_token() -> None:
    tokens = Tokens(Source("x", "%0 = a.b %1#2 [0, 1] : (tensor<2xf32>, i1) -> !t.u<a, <b>> loc(#loc3)"), 8)
    tokens.fill(0)
    assert tokens.list[: -len(END)] == [
        "%0", "=", "a.b", "%1#2", "[0, 1]", ":", "(tensor<2xf32>, i1) -> !t.u<a, <b>>", "loc(#loc3)",
    ]  # fmt: skip
    assert split_parts("(i1) -> [0]") == ["(", "i1", ")", "->", "[", "0", "]"]


def test_a_long_hex_string_is_not_copied() -> None:
    text = 'dense<"0x' + "AB" * 100_000 + '"> : tensor<1xi8>'
    tokens = Tokens(Source("x", text), 8)
    tokens.fill(0)
    (long,) = [token for token in tokens.list if token.startswith('"0x')]
    assert len(long) < 10
    assert long.digits == "AB" * 100_000  # type: ignore[attr-defined]


def test_an_op_longer_than_what_is_kept_ready_is_read() -> None:
    arguments = ", ".join(f"%a{i}: tensor<2xf32> {{x.y = {i} : i32}}" for i in range(3000))
    module = parse(f"func.func @f({arguments}) {{ return }}")
    assert len(module.functions[0].arguments) == 3000
    operands, types = ", ".join(["%a"] * 50_000), ", ".join(["i1"] * 50_000)
    module = parse(f'func.func @f(%a: i1) {{\n "a.b"({operands}) : ({types}) -> ()\n return }}')
    assert len(module.functions[0].body.ops[0].operands) == 50_000


def test_long_lines_are_cut_between_tokens() -> None:
    text = "x " * 50 + '"' + "a" * 5000 + '" //' + "c" * 5000 + "\ny"
    tokens = Tokens(Source("x", text), 1000, 64)
    tokens.piece = 64
    tokens.fill(0)
    assert tokens.list[: -len(END)] == ["x"] * 50 + ['"' + "a" * 5000 + '"', "y"]
