"""What is not the language's is refused where it stands, with what was expected there."""

import time

import pytest

import spmd
from spmd.syntax import parse, same_program

HEAD = "func.func @f(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {\n"


@pytest.mark.parametrize(
    ("body", "line", "column", "message"),
    [
        ("  %0 = stablehlo.add %a, %c : tensor<2xf32>\n", 2, 26, "undeclared SSA value '%c'"),
        ("  %0 = stablehlo.add %0, %a : tensor<2xf32>\n", 2, 22, "undeclared SSA value '%0'"),
        ("  %a = stablehlo.add %a, %b : tensor<2xf32>\n", 2, 8, "redefinition of SSA value '%a'"),
        ("  %0 = stablehlo.add %a, %b : tensor<2xf64>\n", 2, 22, "different type than its definition"),
        ("  %0 = stablehlo.add %a %b : tensor<2xf32>\n", 2, 25, "expected ','"),
        ("  %0 = stablehlo.add %a, %b\n  return %0 : tensor<2xf32>\n", 2, 28, "expected ':'"),
        ("  %0 = stablehlo.add %a, %b // no type\n\n  return %0 : tensor<2xf32>\n", 2, 28, "expected ':'"),
        ("  %0:2 = stablehlo.add %a, %b : tensor<2xf32>\n", 2, 10, "defines 1 results but was provided 2"),
        ("  %0:2:2 = stablehlo.add %a, %b : tensor<2xf32>\n", 2, 7, "expected '=', got ':'"),
        ("  %0:\u00b2 = stablehlo.add %a, %b : tensor<2xf32>\n", 2, 5, "expected '=', got ':'"),
        ("  %0 = stablehlo.add %a, %b : tensor<2xf32\n  return %0 : tensor<2xf32>\n", 2, 37, "expected '>' before '}'"),
        (
            "  %0 = stablehlo.dot %a, %b, precision = [HIGH,] : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>\n",
            2,
            48,
            "DEFAULT, HIGH, HIGHEST",
        ),
        ("  %0 = stablehlo.slice %a [0:1,] : (tensor<2xf32>) -> tensor<1xf32>\n", 2, 32, "an integer"),
        ("  stablehlo.nothing %a\n", 2, 3, "not an op of the stablehlo dialect"),
        ('  "stablehlo.nothing"() : () -> ()\n', 2, 3, "not an op of the stablehlo dialect"),
        ("  other.op %a\n", 2, 3, "custom form of unknown operation 'other.op'"),
        ("  stablehlo.case %a\n", 2, 3, "only the generic form"),
        ('  "a.b"(%a) : (tensor<2xf32>, i1) -> ()\n', 2, 15, "expected 1 operand types, got 2"),
        ('  "a.b"() {\n "x} : () -> ()\n', 3, 2, "a string without an end"),
        ('  "a.b"() {x = 1,\n # } : () -> ()\n', 3, 2, "'#' without a name"),
        ('  "a.b"() {x = #stablehlo.channel_handle<handle = 1, type =\n >} : () -> ()\n', 3, 2, "an integer"),
        ("  %0 = stablehlo.composite\n 3 %a : (tensor<2xf32>) -> tensor<2xf32>\n", 3, 2, "a string"),
        ("  return %a : tensor<2xf32>\n}\nfunc.func\n 3() {\n", 5, 2, "'@'-identifier"),
        ("  return %a : tensor<2xf32>\n}\nfunc.func @g(%a: tensor<f32>,\n :) {\n", 5, 2, "an argument"),
        ('  "a.b"(%a#1) : (tensor<2xf32>) -> ()\n', 2, 9, "invalid result number"),
        ("  %0 = stablehlo.transpose %a, dims = [1, [0]] : tensor<2xf32>\n", 2, 43, "expected an integer value"),
        ("  %0 = stablehlo.compare XX, %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>\n", 2, 26, "one of: EQ"),
        ('  "a.b"() {x = 1, x = 2} : () -> ()\n', 2, 19, "duplicate key 'x'"),
        ('  "a.b"() {x = #none} : () -> ()\n', 2, 16, "undefined attribute alias"),
        ('  "a.b"() {x = #stablehlo.none<1>} : () -> ()\n', 2, 16, "unknown stablehlo attribute"),
        ('  "a.b"() {x = "\\q"} : () -> ()\n', 2, 16, "unknown escape"),
        ('  "a.b"() {x = 300 : i8} : () -> ()\n', 2, 16, "out of range"),
        ('  "a.b"() {x = 1.5 : i32} : () -> ()\n', 2, 16, "not a literal of type i32"),
        ('  "a.b"()[^bb7] : () -> ()\n  return %a : tensor<2xf32>\n', 4, 1, "undefined block '^bb7'"),
        ("  return %a : tensor<2xf32>\n^bb1:\n  return %a : tensor<2xf32>\n^bb1:\n", 5, 1, "redefinition of block"),
    ],
)
def test_an_error_names_its_place(body: str, line: int, column: int, message: str) -> None:
    with pytest.raises(spmd.ParseError) as caught:
        parse(f"{HEAD}{body}}}\n", "file.mlir")
    diagnostic = caught.value.diagnostics[0]
    assert message in str(diagnostic)
    assert (diagnostic.location.line, diagnostic.location.column) == (line, column), str(diagnostic)
    assert str(caught.value).startswith(f"file.mlir:{line}:{column}: ")


def test_attributes_that_do_not_fit_their_declaration_are_told_in_one_go() -> None:
    text = HEAD + (
        '  %0 = "stablehlo.iota"() : () -> tensor<2xf32>\n'
        '  %1 = "stablehlo.iota"() {iota_dimension = "x"} : () -> tensor<2xf32>\n'
        '  %2 = "stablehlo.iota"() {iota_dimension = 0 : i32} : () -> tensor<2xf32>\n'
        "  return %0 : tensor<2xf32>\n}\n"
    )
    with pytest.raises(spmd.VerificationError) as caught:
        parse(text)
    assert [diagnostic.location.line for diagnostic in caught.value.diagnostics] == [2, 3, 4]
    assert all(diagnostic.op == "stablehlo.iota" for diagnostic in caught.value.diagnostics)


def test_names_of_a_region_end_with_it() -> None:
    loop = """
      %0 = stablehlo.while(%i = %a) : tensor<2xf32>
      cond { %p = stablehlo.constant dense<true> : tensor<i1> stablehlo.return %p : tensor<i1> }
      do { %p = stablehlo.add %i, %b : tensor<2xf32> stablehlo.return %p : tensor<2xf32> }
    """
    parse(f"{HEAD}{loop} return %0 : tensor<2xf32> }}")
    with pytest.raises(spmd.ParseError, match="undeclared SSA value '%p'"):
        parse(f"{HEAD}{loop} return %p : tensor<2xf32> }}")


def test_a_function_sees_nothing_from_outside() -> None:
    with pytest.raises(spmd.ParseError, match="undeclared SSA value '%0'"):
        parse('%0 = "a.b"() : () -> i1\nfunc.func @f() { "a.c"(%0) : (i1) -> () }')


@pytest.mark.parametrize("name", ["func.func", "builtin.module"])
def test_a_function_or_module_has_no_result(name: str) -> None:
    with pytest.raises(spmd.VerificationError, match=name):
        spmd.parse(f'func.func @f() {{\n  %0 = "{name}"() : () -> tensor<f32>\n  return\n}}')


def test_bytes_that_are_not_utf8_are_refused_at_their_place() -> None:
    with pytest.raises(spmd.ParseError) as caught:
        parse(b"module {\n  \xff}")
    assert (caught.value.diagnostics[0].location.line, caught.value.diagnostics[0].location.column) == (2, 3)


def test_the_line_quoted_of_a_huge_file_is_short() -> None:
    with pytest.raises(spmd.ParseError) as caught:
        parse("module { " + "x" * 1_000_000)
    assert len(str(caught.value)) < 1000


MANY = [200_000, pytest.param(500_000, marks=pytest.mark.slow)]


def hostile(many: int) -> dict[str, str]:
    """Return texts that are no program, in which something stands `many` times."""
    return {
        "parentheses": "(" * many,
        "pairs": "()" * many,
        "brackets in a constant": "func.func @f() { %0 = stablehlo.constant dense<" + "[" * many,
        "nested arrays": "module attributes {a = " + "[" * many,
        "nested dictionaries": "module attributes {a = " + "{b = " * many,
        "nested types": "func.func @f(%a: " + "tuple<" * many,
        "nested regions": '"a.b"() ({\n' * many,
        "angles": "func.func @f(%a: tensor" + "<" * many,
        "one string": '"' + "a" * many,
        "quotes": '"' * many,
        "dimensions": "func.func @f(%a: tensor<" + "4x" * many + "f32>)",
        "digits": "module attributes {a = " + "1" * many + "} {}",
        "an exponent": "func.func @f() { %0 = stablehlo.constant dense<1.0e-99999999> : tensor<f32> return",
        "truncated hex": 'func.func @f() { %0 = stablehlo.constant dense<"0x' + "ab" * many,
        "types without end": "func.func @f(%a: (" + "tensor<f32>, " * many,
        "operands without end": '"a.b"(' + ", ".join(["%a"] * many),
        "results": '%a:4294967296 = "a.b"() : () -> ()',
        "nulls": "\0" * many,
        "dashes": "#a<" + "-" * many,
        "one slash behind slashes": "/" * many + "\n/",
    }


@pytest.mark.parametrize("many", MANY)
@pytest.mark.parametrize("kind", hostile(0))
def test_hostile_text_is_an_error_and_nothing_else(kind: str, many: int) -> None:
    text = hostile(many)[kind]
    began = time.monotonic()
    with pytest.raises(spmd.ParseError) as caught:
        parse(text)
    assert caught.value.diagnostics[0].location.line >= 1
    assert time.monotonic() - began < 120, "a hang"


@pytest.mark.parametrize("many", [0, *MANY])
@pytest.mark.parametrize(("begin", "repeated"), [("", " "), ("", "\n"), ("//", "x"), ("//", "/")])
def test_nothing_is_the_program_of_no_functions(begin: str, repeated: str, many: int) -> None:
    """Specification, "Programs": Program ::= {Func}."""
    module = spmd.parse((begin + repeated * many) if many else "")
    assert module.functions == [] and same_program(module, spmd.parse("module {}"))


def test_locations_that_double_take_no_time() -> None:
    locations = "\n".join(
        ['#loc0 = loc("a")', *(f"#loc{i} = loc(fused[#loc{i - 1}, #loc{i - 1}])" for i in range(1, 50))]
    )
    parse(f"{locations}\nmodule {{}} loc(#loc49)")
