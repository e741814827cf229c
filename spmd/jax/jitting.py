"""`spmd.jax.jit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Unpack, overload

from collectives.grid import ProcessGrid
from spmd.compiler.pipeline.options import CompileOptions, chosen_options
from spmd.errors import UsageError
from spmd.jax.process_view import Axes
from spmd.jax.statics import Selected, as_names, as_numbers
from spmd.jax.step import Declared, JittedFunction, function_and_statics
from spmd.support.arrays import Tree, UserFunction
from spmd.support.usage import check_grid

#: Arguments of a function, by number or name.
Names = int | str | Sequence[int | str]


class JitOptions(CompileOptions, total=False):
    """The keyword arguments of `jit`."""

    axes: Mapping[str, int] | None
    grid: ProcessGrid | None
    donate_argnums: int | Sequence[int]
    donate_argnames: str | Sequence[str]
    static_argnums: int | Sequence[int]
    static_argnames: str | Sequence[str]
    replicated: Names
    replicated_results: bool | int | Sequence[int]
    as_jax: bool
    mesh: Mapping[str, int] | None
    in_shardings: Tree
    memory: float | str | None


@overload
def jit(function: UserFunction, **options: Unpack[JitOptions]) -> JittedFunction: ...


@overload
def jit(function: None = None, **options: Unpack[JitOptions]) -> Callable[[UserFunction], JittedFunction]: ...


def jit(
    function: UserFunction | None = None,
    *,
    axes: Mapping[str, int] | None = None,
    grid: ProcessGrid | None = None,
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    replicated: Names = (),
    replicated_results: bool | int | Sequence[int] = (),
    as_jax: bool = False,
    mesh: Mapping[str, int] | None = None,
    in_shardings: Tree = None,
    memory: float | str | None = None,
    **options: Unpack[CompileOptions],
) -> Tree:
    """Make a JAX function run on the ranks of a job; also a decorator.

    A plain function is written for one process: its arguments and results are trees of this process's arrays, and
    `jax.lax.psum` and similar functions work over the named axes, with the meaning, also of derivatives, that they have
    under `jax.vmap` with axis names. A function that is `jax.jit(f, in_shardings=..., out_shardings=...)`, or contains
    `jax.shard_map` over a mesh, is in the global view: it is written for whole arrays. At its first call each leaf is a
    whole array, of which this process takes its block. Afterwards a leaf with a block's shape is this process's block,
    as results are; `step.unshard(tree)` joins blocks, `step.shard(tree)` cuts arrays. Meshes may be abstract
    (`jax.sharding.AbstractMesh`): one device suffices.

    :param axes: sizes by name, major first: rank = (index on the first axis) * (size of the second) + ... By default
        one axis, "processes", of all ranks. The global view has a mesh instead.
    :param grid: instead of `axes`: one axis, "processes", of all its processes.
    :param donate_argnums, donate_argnames: as for jax.jit: permission to overwrite the NumPy arrays of these arguments.
        Results may be the given arrays. What is not writable, such as a jax.Array, is copied.
    :param static_argnums, static_argnames: as for jax.jit; those of a function that is jax.jit's are static as well.
    :param replicated: arguments, by number or name, that are equal on all processes. When the function is traced, its
        communication is checked (see `spmd check`): certain errors raise CollectiveError at their line, suspected ones
        warn with CommunicationWarning.
    :param replicated_results: numbers of results that must be equal on all processes, or True for all of them.
    :param as_jax: whether results are jax.Arrays; by default they are NumPy arrays, which JAX takes as well.
    :param mesh: sizes of axes by name, major first, for a function of the global view without a mesh: its layout is
        searched for, as by `spmd.autoshard`; `step.plan` describes the choice.
    :param in_shardings: "auto", or a tree like the positional arguments with spmd.jax.AUTO for leaves whose layout is
        searched for, and a jax.sharding.PartitionSpec (None: whole on all processes) for others.
    :param memory: bytes of memory per process that the layout must fit, a number or a text such as "16GB".
    :param options: those of spmd.compile.
    :raises UsageError: for invalid axes, static arguments or leaves, and a number of ranks that does not fit.
    """
    donated = Selected(as_numbers(donate_argnums, "donate_argnums"), as_names(donate_argnames, "donate_argnames"))

    def jitted(function: UserFunction) -> JittedFunction:
        plain, statics = function_and_statics(function, static_argnums, static_argnames, "spmd.jax.jit")
        if mesh is None and in_shardings is not None:
            raise UsageError(
                "in_shardings is an option of jax.jit: spmd.jax.jit takes what jax.jit(f, in_shardings=...) gives, or "
                "in_shardings with a mesh over which a layout is searched for"
            )
        if mesh is not None and (axes is not None or grid is not None):
            raise UsageError("spmd.jax.jit takes a mesh, or the axes or the grid of the view of one process")
        _check_options(as_jax, options)
        declared = Declared(_arguments(replicated), replicated_results)
        layout = None
        if mesh is not None:
            from spmd.jax.searched import searched  # imported late: the solver is needed for a search only

            layout = searched(mesh, in_shardings, memory)
        axes_of_all = _all_axes(axes, grid)
        return JittedFunction(plain, axes_of_all, statics, as_jax, options, donated, declared, layout)

    return jitted if function is None else jitted(function)


def _arguments(given: Names) -> Selected:
    """Return arguments that are given by number or name."""
    entries = tuple(given) if isinstance(given, list | tuple) else (given,)
    numbers = tuple(entry for entry in entries if isinstance(entry, int))
    names = tuple(entry for entry in entries if isinstance(entry, str))
    if len(numbers) + len(names) < len(entries):
        raise UsageError(f"replicated must be numbers and names of arguments, got {given!r}")
    return Selected(numbers, names, "replicated", "replicated")


def _check_options(as_jax: object, options: CompileOptions) -> None:
    """Raise UsageError for options that neither jit nor spmd.compile has."""
    if not isinstance(as_jax, bool):
        raise UsageError(f"as_jax must be True or False, got {as_jax!r}")
    of_jax = sorted({"out_shardings"}.intersection(options))
    if of_jax:
        raise UsageError(
            f"{of_jax[0]} is an option of jax.jit: spmd.jax.jit takes what jax.jit(f, {of_jax[0]}=...) gives"
        )
    chosen_options(ProcessGrid(1, 1), options)


def _all_axes(axes: Mapping[str, int] | None, grid: ProcessGrid | None) -> Axes | None:
    """Return the axes, or the one of a grid; None if neither is given."""
    check_grid(grid, "spmd.jax.jit")
    chosen = None if axes is None else checked_axes(axes)
    if grid is None:
        return chosen
    if chosen is not None:
        raise UsageError("spmd.jax.jit takes axes or a grid, not both: the axes say how many processes there are")
    return (("processes", grid.size),)


def checked_axes(axes: object) -> Axes:
    """Return axes as pairs; UsageError unless they map names to sizes."""
    if not isinstance(axes, Mapping) or not axes:
        raise UsageError(f'axes must map names to sizes, such as {{"data": 4}}, got {axes!r}')
    for name, size in axes.items():
        if not isinstance(name, str) or isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise UsageError(f"axes must map names to positive integers, got {name!r}: {size!r}")
    return tuple((name, int(size)) for name, size in axes.items())
