"""Files of machines and networks: what is written is read, and what is wrong is named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collectives.algorithms import HALVING
from collectives.network import Level, Network
from collectives.operations import AllGather, AllReduce
from collectives.reduction import ADD
from spmd.compiler.schedule.costs import Work
from spmd.errors import UsageError
from spmd.predict.calibrate import fitted_link
from spmd.predict.machine import Curve, Machine, MeasuredProduct, MemoryBandwidth, nominal, read_machine
from spmd.predict.prediction import prices_of
from spmd.predict.topology import read_topology

CURVE = Curve("all_reduce", "mpi", 2, (4.0, 4096.0, 1e6), (2e-6, 5e-6, 4e-4))
MACHINE = Machine(
    'of "round" figures\\',
    nominal().overhead,
    nominal().rates,
    nominal().memory,
    nominal().link,
    (
        MeasuredProduct(32, "nn", (1, 8, 8, 8), 1e9),
        MeasuredProduct(32, "nt", (1, 8, 8, 8), 5e8),
        MeasuredProduct(64, "nn", (1, 8, 8, 8), 4e8),
    ),
    (CURVE,),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    file.write_text(MACHINE.to_toml())
    assert read_machine(file) == MACHINE


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("elementwise = 2", "elementwise = -2", r"\[rates\]: elementwise must be a number above 0; got -20000000000.0"),
        ("elementwise =", "elementwize =", r"\[rates\]: elementwise must be a number above 0; there is none"),
        (
            "call = ",
            "cells = 3\ncall = ",
            r"\[overhead\]: unknown entry cells; known are: call, coll",
        ),
        ("call = ", "call = true # ", r"\[overhead\]: call must be a number above 0; got True"),
        ("call = ", f"call = {'9' * 400} # ", r"\[overhead\]: call must be a number above 0; got 9{60}\.\.\.$"),
        ("call = ", f"call = {'9' * 5000} # ", r"Exceeds the limit .* for integer string conversion"),
        ("bits = 32", f"bits = {'9' * 400}", r"1: bits must be a whole number from 1 on, of 64 bits; got 9{60}\.\.\.$"),
        ("call = ", "call = nan # ", r"\[overhead\]: call must be a number above 0; got nan"),
        ("bits = 32", "bits = 0", r"\[\[product\]\] 1: bits must be a whole number from 1 on, of 64 bits; got 0"),
        (
            "sizes = [1, 8, 8, 8]",
            "sizes = [1, 8, 8]",
            r"\[\[product\]\] 1: sizes must be batch, rows, depth",
        ),
        ('how = "mpi"', 'how = "magic"', r"\[\[collective\]\] 1: how must be one of mpi, widened, exchanged"),
        (
            "seconds = [",
            "seconds = [1, ",
            r"\[\[collective\]\] 1: bytes must be increasing, and seconds must have as many entries",
        ),
        ("[link]", "[[link]]", r"link must be a table, \[link\]"),
        ("name = ", "name ", r"Expected '='"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    file = tmp_path / "machine.toml"
    text = MACHINE.to_toml()
    assert before in text
    file.write_text(text.replace(before, after, 1))
    with pytest.raises(UsageError, match=said) as caught:
        read_machine(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read: No such file"):
        read_machine(tmp_path / "none.toml")


def test_curves_go_through_what_was_measured_and_never_fall() -> None:
    assert [CURVE.at(size) for size in CURVE.bytes] == pytest.approx(CURVE.seconds)
    seconds = [CURVE.at(size) for size in np.geomspace(1, 1e9, 200)]
    assert (np.diff(seconds) >= -1e-12).all() and CURVE.at(1e8) == pytest.approx(100 * CURVE.at(1e6))


def test_what_was_measured_prices_what_was_measured() -> None:
    operation = AllReduce((250_000,), np.dtype(np.float32), ADD)
    assert MACHINE.measured(operation, 2) == pytest.approx(CURVE.at(1e6))
    assert MACHINE.measured(operation, 8) is None
    assert MACHINE.measured(replace(operation, reproducible=True), 2) is None


def test_a_link_is_fitted_to_what_was_measured() -> None:
    """Curves of a machine whose messages are known give these messages back, whatever is folded beside."""
    known, folding, started = Level("machine", None, 3e-6, 2e9, "recursive_halving"), 4e9, 1e-6
    network, shape = Network((known,), folding), (1 << 16,)
    operations = [AllReduce(shape, np.dtype(np.float32), ADD), AllGather((1 << 14,), np.dtype(np.float32), 0)]
    curves = []
    for size in (2, 4):
        for operation in operations:
            sizes = tuple(float(4 << shift) for shift in range(0, 23))
            seconds = [
                network.flat(replace(operation, shape=(int(n) // 4,)), np.arange(size)[None], HALVING).seconds[0]
                for n in sizes
            ]
            curves.append(Curve(operation.name, "mpi", size, sizes, tuple(each + started for each in seconds)))
    link = fitted_link(curves, folding, started)
    assert link.latency == pytest.approx(known.latency, rel=0.1)
    assert link.bandwidth == pytest.approx(known.bandwidth, rel=0.1)


def test_a_machine_alone_has_a_link() -> None:
    assert fitted_link([], 1e9, 1e-6).bandwidth > 0


def test_products_take_the_nearest_of_their_form_and_width() -> None:
    def rate(bits: int, form: str) -> float:
        work = Work("product", 1024, bits, (1, 8, 8, 8), form)
        return work.amount / MACHINE.seconds(work)

    assert [rate(32, "nn"), rate(32, "nt"), rate(64, "nt")] == pytest.approx([1e9, 5e8, 4e8])


def test_reading_and_writing_have_bandwidths_of_their_own() -> None:
    near, far = MemoryBandwidth(1e6, 8e10, 4e10), MemoryBandwidth(1e8, 2e10, 1e10)
    machine = replace(MACHINE, memory=(near, far))
    assert [machine.reading(8e9, 1e5), machine.writing(8e9, 1e5)] == pytest.approx([0.1, 0.2])
    assert [machine.reading(8e9, 1e9), machine.writing(8e9, 1e9)] == pytest.approx([0.4, 0.8])
    assert machine.reading(8e9, 1e7) == pytest.approx(0.2)


def test_wide_numbers_take_twice_as_long() -> None:
    assert MACHINE.seconds(Work("elementwise", 100, 64)) == 2 * MACHINE.seconds(Work("elementwise", 100, 32))


LEVELS = """
name = "c"
[[level]]
name = "node"
processes = 4
latency = 1e-6
bandwidth = 1e10
algorithm = "ring"
[[level]]
name = "rack"
processes = 8
latency = 1e-5
bandwidth = 1e9
uplink = 2e9
algorithm = "hierarchical"
"""


def test_a_network_is_read(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(LEVELS)
    network = read_topology(file, 1e9)
    levels = [(level.name, level.processes, level.uplink) for level in network.levels]
    assert levels == [("node", 4, None), ("rack", 8, 2e9)]
    with pytest.raises(UsageError, match="level 'rack' of the network, the outermost, must have 9 processes, got 8"):
        prices_of(nominal(), network, 9)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("processes = 8", "processes = 6", "level 'rack': processes must be a multiple of those of 'node'"),
        ("processes = 4", "", "level 'rack': processes must be a multiple of those of 'node'"),
        ('algorithm = "ring"', 'algorithm = "star"', "algorithm must be one of ring, tree, recursive_halving, hier"),
        ("latency = 1e-6", "latency = 0", r"\[\[level\]\] 1: latency must be a number above 0; got 0"),
        ("[[level]]", "[[levels]]", "unknown entry levels|level must be tables"),
    ],
)
def test_a_network_that_is_wrong_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(LEVELS.replace(before, after))
    with pytest.raises(UsageError, match=said):
        read_topology(file, 1e9)
