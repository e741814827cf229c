"""Each faulty program of the corpus is found out, at the right line and for the right reason; put right, it passes."""

import pytest

import spmd
from spmd.analysis.varying.check import check_processes, check_programs
from spmd.analysis.varying.findings import Finding
from tests.analysis.varying.cases import Case, Variant, cases

CASES = list(cases())


def findings(variant: Variant) -> list[Finding]:
    grid = spmd.ProcessGrid(*map(int, variant.options.get("grid", "4x1").split("x")))
    modules = [(name, spmd.parse(text, name=name)) for _, name, text in variant.programs]
    if len(modules) > 1:
        counts = [count for count, _, _ in variant.programs]
        return check_programs(modules, counts, replicated_arguments=variant.numbers("args"))
    return check_processes(
        modules[0][1],
        grid,
        replicated_arguments=variant.numbers("args"),
        replicated_results=variant.numbers("results"),
    )


@pytest.mark.sampled(26)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_mistake_is_found_and_what_looks_like_it_passes(case: Case) -> None:
    expected = case.faulty.expected
    assert expected is not None
    found = findings(case.faulty)
    told = [(each.kind.value, each.certain, each.diagnostic.location.line) for each in found]
    assert told[:1] == [(expected.kind, expected.certain, expected.line)], "\n".join(map(str, found))
    assert expected.text in str(found[0])
    assert [str(each) for each in findings(case.right)] == []


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 120
    assert len({expected.kind for case in CASES if (expected := case.faulty.expected) is not None}) >= 7
