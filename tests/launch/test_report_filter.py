"""Reports of ranks on other hosts, in the stream that the launcher passes on."""

from pathlib import Path

import pytest

from collectives.failure import REPORT_BEGINS, REPORT_ENDS
from launch.report_filter import ReportFilter

REPORT = f"{REPORT_BEGINS}3\nrank 3 of 4 on b failed:\nValueError: no cheese\n{REPORT_ENDS}".encode()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_reports_are_filed_and_all_else_is_passed_on_whatever_the_pieces(size: int, tmp_path: Path) -> None:
    stream = b"before\n" + REPORT + b"between \x1d\x1e\n" + REPORT.replace(b"3", b"12") + b"after"
    filter = ReportFilter(tmp_path)
    passed = b"".join(filter.feed(stream[start : start + size]) for start in range(0, len(stream), size))
    assert passed + filter.flush() == b"before\nbetween \x1d\x1e\nafter"
    assert (tmp_path / "rank-3.txt").read_text() == "rank 3 of 4 on b failed:\nValueError: no cheese\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-12.txt", "rank-3.txt"]


def test_a_report_without_an_end_is_all_that_there_is(tmp_path: Path) -> None:
    filter = ReportFilter(tmp_path)
    assert filter.feed(b"x" + REPORT[:-10]) + filter.flush() == b"x"
    filter.close()
    assert (tmp_path / "rank-3.txt").read_bytes() == REPORT[len(REPORT_BEGINS) + 2 : -10]


def test_the_beginning_of_a_report_that_is_none_is_passed_on(tmp_path: Path) -> None:
    filter = ReportFilter(tmp_path)
    assert filter.feed(b"a\x1dspmd") == b"a"
    assert filter.flush() == b"\x1dspmd"
