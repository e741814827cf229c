"""What Open MPI prints of closed connections."""

import pytest

from launch.connection_filter import ConnectionFilter

CLOSED = b"""\
[b:00000] *** An error occurred in Socket closed
[b:00000] *** reported by process [3350593537,2]
[b:00000] *** on a NULL communicator
[b:00000] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
[b:00000] ***    and MPI will try to terminate your MPI job as well)
"""
WARNING = b"""\
[a:00037] plm:ssh: Warning: setpgid(41,41) failed in parent with errno=Permission denied(13)
[a:00037] pmix_ptl_base: send_msg: write failed: Connection reset by peer (104) [sd = 27]
"""
OTHER = b"""\
[info] *** of the user
 40%|##  \r[x:1] *** An error occurred in MPI_Send
[x:1] *** on communicator MPI_COMM_WORLD
[1, 2]"""


@pytest.mark.parametrize("size", [1, 3, 50, 1000])
def test_lines_of_closed_connections_are_taken_out_and_no_others(size: int) -> None:
    stream = b"before\n" + WARNING + CLOSED + OTHER
    filter = ConnectionFilter()
    passed = b"".join(filter.feed(stream[start : start + size]) for start in range(0, len(stream), size))
    assert passed + filter.flush() == b"before\n" + OTHER
    assert filter.cause == "spmd launch: rank 2 on b lost its connection to another rank; all other ranks were ended"


def test_a_line_that_does_not_end_is_passed_on_after_a_while() -> None:
    filter = ConnectionFilter()
    assert (filter.feed(b"[a:1] *** An"), filter.flush(), filter.feed(b" error occurred in Socket closed\n")) == (
        b"", b"[a:1] *** An", b" error occurred in Socket closed\n",
    )  # fmt: skip
    assert filter.cause == ""
