"""The errors that a conformance file expects, as MLIR's diagnostic verifier reads them."""

from pathlib import Path

import pytest

from launch import cli
from launch.conformance import read_cases
from launch.expectations import Expectation, expectations

WRONG = """func.func @main(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<2xf32> {
  {mark}
  %0 = stablehlo.add %a, %b : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
SOUND = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  return %a : tensor<2xf32>
}
"""


def lines(text: str) -> list[int | None]:
    return [entry.line for entry in expectations(text)]


def test_the_line_of_a_mark() -> None:
    marks = ["", "@+2", "@-1", "@7", "@unknown"]
    text = "\n".join(["first", *(f"x // expected-error{mark} {{{{w}}}}" for mark in marks)])
    assert lines(text) == [2, 5, 3, 7, None]


def test_above_and_below_pass_over_other_marks() -> None:
    text = """a
    // expected-error@below {{1}}
    // expected-error@below {{2}}
    b
    // expected-error@above {{3}}
    // expected-error@above {{4}}
    c"""
    assert sorted((entry.text, entry.line) for entry in expectations(text)) == [("1", 4), ("2", 4), ("3", 4), ("4", 4)]


def test_words_patterns_and_counts() -> None:
    text = """// expected-error {{a {b} c}}
    // expected-error-re @+1 2 {{got {{[0-9]+}} of {{.*}}}}"""
    assert expectations(text) == [
        Expectation(1, "a {b} c"),
        Expectation(3, "got {{[0-9]+}} of {{.*}}", is_pattern=True, count=2),
    ]


MARKS = {
    # mark: (status by line alone, status by words)
    "expected-error@+1 {{add}}": (0, 0),
    "expected-error@+1 {{same type}}": (0, 1),
    "expected-error@+1 {{}}": (0, 0),
    "expected-error-re@+1 {{stablehlo.{{a[d]+}}: {{.*}}}}": (0, 0),
    "expected-error-re@+1 {{stablehlo{{[.]}}a{{x+}}}}": (0, 1),
    "expected-error@+1 {{stablehlo.{{a[d]+}}: {{.*}}}}": (0, 1),  # without -re the braces are themselves
    "expected-error-re@+1 {{stablehl..add}}": (0, 1),  # outside of the braces a dot is a dot
    "expected-error-re@+1 {{a {{[}} b}}": (0, 1),
    "expected-error@+2 {{add}}": (1, 1),
    "expected-error@+1 2 {{add}}": (0, 1),
}


@pytest.mark.parametrize("mark", MARKS)
def test_errors_are_compared_by_line_or_by_words(tmp_path: Path, capsys: pytest.CaptureFixture[str], mark: str) -> None:
    path = tmp_path / "wrong.mlir"
    path.write_text(WRONG.replace("{mark}", f"// {mark}"))
    by_line, by_words = MARKS[mark]
    assert cli.main(["test", str(path)]) == by_line
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == ("1 passed, 0 failed" if not by_line else "0 passed, 1 failed")
    assert by_line or told[-2] == "1 expected error matched by line alone: --diagnostics compares their text"
    assert cli.main(["test", "--diagnostics", str(path)]) == by_words
    assert "by line alone" not in capsys.readouterr().out


def test_an_error_that_nobody_expects_fails_where_words_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "wrong.mlir"
    two = WRONG.replace(
        "  return", "  %1 = stablehlo.transpose %a, dims = [1] : (tensor<2xf32>) -> tensor<2xf32>\n  return"
    )
    path.write_text(two.replace("{mark}", "// expected-error@+1 {{add}}"))
    assert cli.main(["test", str(path)]) == 0
    assert cli.main(["test", "--diagnostics", str(path)]) == 1


def test_modules_that_were_not_run_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sound.mlir"
    run = "func.func @main() { return }\n"
    path.write_text(f"{SOUND}// -----\n{SOUND}// -----\n{run}")
    assert cli.main(["test", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 modules only verified: no main, or only function, without arguments to run",
        "3 passed, 0 failed",
    ]
    assert cli.main(["test", "--no-run", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "3 modules only verified: --no-run"
    assert [case.line for case in read_cases([path])] == [1, 5, 9]


def test_checks_that_nothing_runs_have_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "checked.mlir"
    path.write_text(
        "func.func @main(%x: tensor<2xf32>) {\n  check.expect_eq_const %x, dense<1.0> : tensor<2xf32>\n  return\n}"
    )
    assert cli.main(["test", str(path)]) == 1
    assert "checked.mlir:2:3: check.expect_eq_const never runs" in capsys.readouterr().out
    assert cli.main(["test", "--no-run", str(path)]) == 0
