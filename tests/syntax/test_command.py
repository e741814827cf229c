"""spmd test: modules of a file pass or fail one by one, and the last line counts them."""

from pathlib import Path

import pytest

from launch.cli import main
from launch.conformance import Case, judge

GOOD = """
func.func @main() {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %1 = stablehlo.add %0, %0 : tensor<2xi32>
  check.expect_eq_const %1, dense<[2, 4]> : tensor<2xi32>
  return
}
"""
WRONG_RESULT = GOOD.replace("[2, 4]", "[2, 5]")
REJECTED = """
func.func @f(%a: tensor<2xi32>) -> tensor<2xi32> {
  // expected-error@+1 {{shapes}}
  %0 = "stablehlo.add"(%a, %a) : (tensor<2xi32>, tensor<2xi32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
"""


def check(text: str) -> str | None:
    return judge(Case(Path("x.mlir"), 0, text)).problem


def test_a_program_whose_checks_hold() -> None:
    assert check(GOOD) is None


def test_a_check_that_fails() -> None:
    assert "check.expect_eq_const" in (check(WRONG_RESULT) or "")


@pytest.mark.parametrize("mark", ["@+1", " @+1", "@below", "-re@+1", "@4", " @ +1"])
def test_an_error_at_the_marked_line(mark: str) -> None:
    assert check(REJECTED.replace("@+1", mark)) is None


def test_marks_behind_the_line_and_on_it() -> None:
    op = '  %0 = "stablehlo.add"(%a, %a) : (tensor<2xi32>, tensor<2xi32>) -> tensor<3xi32>'
    plain = REJECTED.replace("  // expected-error@+1 {{shapes}}\n", "")
    assert check(plain.replace(op, f"{op} // expected-error {{{{x}}}}")) is None
    assert check(plain.replace(op, f"{op}\n  // expected-error@-1 {{{{x}}}}")) is None
    assert check(plain.replace(op, f"{op}\n  // expected-error@above {{{{x}}}}")) is None
    assert "rejected" in (check(plain) or "")


def test_an_error_at_another_line_is_not_the_marked_one() -> None:
    assert "no error at line 2" in (check(REJECTED.replace("@+1", "@-1")) or "")


def test_a_marked_module_must_be_rejected() -> None:
    text = REJECTED.replace("tensor<3xi32>", "tensor<2xi32>")
    assert "accepted" in (check(text) or "")


def test_the_command_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mlir").write_text(f"{GOOD}\n// -----\n{WRONG_RESULT}\n// -----\n\n// only a comment\n")
    (tmp_path / "b.mlir").write_text(REJECTED)
    assert main(["test", "-j", "2", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 1 failed"
    assert any("a.mlir:11" in line for line in lines)
    assert main(["test", "-v", "-k", "b.mlir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"
