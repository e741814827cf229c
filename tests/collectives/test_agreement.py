"""How processes that have come to different things are told of it."""

from collectives.agreement import ProcessStep, difference_text


def test_the_facts_that_differ_are_told_by_their_first_line_that_does() -> None:
    same = "module {\n  a\n  b\n}"
    sides = [ProcessStep("first call", {"grid": "4x1", "program": same}) for _ in range(4)]
    sides[2] = ProcessStep("first call", {"grid": "4x1", "program": "module {\n  a\n  c\n}"})
    text = difference_text(range(4), sides, "advice")
    assert text.splitlines() == [
        "processes differ in what they must have in common:",
        "  processes 0-3: first call",
        "  program, line 3:",
        "    processes 0-1, 3: b",
        "    process 2: c",
        "advice",
    ]


def test_a_fact_that_one_lacks_and_a_line_that_one_lacks() -> None:
    sides = [ProcessStep("save", {"a": "1\n2"}), ProcessStep("load", {"a": "1\n2\n3", "b": "x" * 500})]
    lines = difference_text((4, 7), sides).splitlines()
    assert lines[1:3] == ["  process 4: save", "  process 7: load"]
    assert lines[3:6] == ["  a, line 3:", "    process 4: (nothing)", "    process 7: 3"]
    assert lines[6:8] == ["  b:", "    process 4: (nothing)"] and len(lines[8]) < 200


def test_many_facts_are_counted() -> None:
    sides = [ProcessStep("call", {f"argument {n}": str(n + shift) for n in range(20)}) for shift in range(2)]
    assert difference_text((0, 1), sides).splitlines()[-1] == "  and 12 more"
