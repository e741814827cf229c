"""What is reported of an error: the frames of a user's program alone, where the error says what is wrong with it."""

import types

import pytest

import spmd
from collectives.failure import report_of

USERS = """
def call(function):
    return function()
"""


def report(function: object) -> str:
    users = types.ModuleType("users")
    exec(compile(USERS, "users.py", "exec"), vars(users))
    with pytest.raises(Exception) as caught:
        users.call(function)
    return report_of(caught.value, caught.tb)


def test_an_error_of_a_program_has_the_users_frames_alone() -> None:
    told = report(lambda: spmd.parse("func.func @main() { foo }"))
    assert 'File "users.py", line 3, in call' in told and "<string>:1:21: custom form of unknown operation" in told
    assert "spmd/syntax" not in told and "spmd/io" not in told


def test_any_other_error_has_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmd.io.reading._parse", lambda *words, **named: 1 // 0)
    told = report(lambda: spmd.parse("func.func @main() { return }"))
    assert "spmd/io/reading.py" in told and told.endswith("ZeroDivisionError: integer division or modulo by zero\n")
