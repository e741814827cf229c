"""`spmd.view`: a page that shows a program, its processes, and their communication."""

from __future__ import annotations

import html
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Unpack

from collectives.grid import ProcessGrid
from collectives.network import Network
from spmd.compiler.pipeline.options import CompileOptions
from spmd.errors import UsageError
from spmd.ir import Module
from spmd.predict.machine import Machine, default_machine, read_machine
from spmd.predict.topology import default_network, read_topology
from spmd.runtime.executable import Executable
from spmd.support.files import write_file
from spmd.support.usage import check_function, check_grid, check_module
from spmd.viewing.document import document
from spmd.viewing.page import page
from spmd.viewing.subject import Subject
from spmd.viewing.tables import Json

#: The height of a page in a notebook, in pixels.
_HEIGHT = 760


class View:
    """A page about one program, or two side by side. `documents` is its data, JSON for each program."""

    def __init__(self, documents: Sequence[Json], title: str) -> None:
        self.documents = documents
        self.title = title

    def to_html(self) -> str:
        """Return the page as self-contained HTML."""
        return page(self.documents, self.title)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file, which browsers open without a network or server."""
        write_file(fspath(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        text = html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{text}" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"<view of {self.title}>"


def view(
    program: Module | Executable,
    other: Module | Executable | None = None,
    *,
    grid: ProcessGrid | None = None,
    function: str = "main",
    machine: str | PathLike[str] | Machine | None = None,
    topology: str | PathLike[str] | Network | None = None,
    profile: str | PathLike[str] | None = None,
    run: bool = False,
    seed: int = 0,
    title: str | None = None,
    partition: bool = True,
    **options: Unpack[CompileOptions],
) -> View:
    """Return a page that shows `program`: processes, arrays, ops, communication, memory and time, linked.

    :param other: a second program, shown side by side.
    :param grid, function: what to compile of a module, as for spmd.compile; an executable has its own.
    :param machine, topology: the machine and network for predictions, or their files, as for `spmd predict`.
    :param profile: a trace of `spmd run --profile`, shown below the predicted step.
    :param run: whether to run the program on arguments generated from `seed`, to show the values on each process after
        every op; for small programs on up to 64 processes.
    :param partition: whether a program with shardings is partitioned, as spmd.compile does.
    :param title: the title of the page, by default the name of the program's file.
    :param options: those of spmd.compile.
    :raises UsageError: for an invalid program, grid or file, or a program too large to run.
    """
    check_grid(grid, "spmd.view")
    check_function(function, "spmd.view")
    chosen = _machine(machine)
    network = _network(topology, chosen)
    seeds = seed if run else None
    subjects = [
        _of_executable(each, grid, chosen, network, title, options)
        if isinstance(each, Executable)
        else _of_module(each, grid, function, chosen, network, title, options, partition=partition)
        for each in ((program,) if other is None else (program, other))
    ]
    documents = [document(each, profile=profile, seed=seeds) for each in subjects]
    return View(documents, title or " beside ".join(each.title for each in subjects))


def _of_executable(
    executable: Executable,
    grid: ProcessGrid | None,
    machine: Machine,
    network: Network | None,
    title: str | None,
    options: CompileOptions,
) -> Subject:
    if grid is not None or options:
        raise UsageError("grid and options must not be given for an executable, which is compiled already")
    return Subject.of_executable(executable, machine, network, title or _title(executable.module))


def _of_module(
    module: Module,
    grid: ProcessGrid | None,
    function: str,
    machine: Machine,
    network: Network | None,
    title: str | None,
    options: CompileOptions,
    *,
    partition: bool,
) -> Subject:
    check_module(module, "spmd.view")
    name = title or _title(module)
    return Subject.of(module, grid, function, machine, network, name, options, partition=partition)


def _title(module: Module) -> str:
    """Return the name of the module's file, or of the module."""
    name = module.location.file.replace("\\", "/").rpartition("/")[2]
    return name if name and not name.startswith("<") else f"@{module.symbol}" if module.symbol else "a program"


def _machine(given: str | PathLike[str] | Machine | None) -> Machine:
    if isinstance(given, Machine):
        return given
    return default_machine() if given is None else read_machine(Path(given))


def _network(given: str | PathLike[str] | Network | None, machine: Machine) -> Network | None:
    if given is None or isinstance(given, Network):
        return default_network(machine) if given is None else given
    return read_topology(Path(given), machine.rates["folding"])
