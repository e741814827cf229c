"""`spmd.jax.export`: export of a JAX function as a program that runs without JAX."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from os import PathLike

import jax

from spmd.errors import UsageError
from spmd.ir import Module
from spmd.jax.jitting import checked_axes
from spmd.jax.leaves import form_of, names_of
from spmd.jax.module import check_no_callbacks, name_arguments
from spmd.jax.step import function_and_statics
from spmd.jax.tracebacks import api_boundary
from spmd.jax.tracing import lower, refuse_axes
from spmd.support.arrays import UserFunction
from spmd.support.files import write_file


@api_boundary
def export(
    function: UserFunction,
    *args: object,
    axes: Mapping[str, int] | None = None,
    path: str | PathLike[str] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    **kwargs: object,
) -> Module:
    """Return the program that `spmd.jax.jit(function, axes=axes)` runs for such arguments, and write it to `path`.

    It is StableHLO text, which needs no JAX to run: `spmd.load(path)`, or `spmd run path`. It takes and returns the
    leaves of the trees in JAX's order; each argument has its name in the tree as `jax.arg_info`, each result as
    `jax.result_info`, each op its lines of Python as its location.

    :param args, kwargs: one process's arguments, or whole ones in the global view: arrays, or jax.ShapeDtypeStruct.
    :param axes: sizes by name, major first; the global view has a mesh instead, and takes none.
    :returns: the module.
    :raises UsageError: for what `spmd.jax.jit` rejects, and for callbacks into Python.
    """
    plain, statics = function_and_statics(function, static_argnums, static_argnames, "spmd.jax.export")
    rest, named, static = statics.split(args, kwargs)
    leaves, tree = jax.tree.flatten((rest, named))
    names = names_of((rest, named), statics.names_of_rest())
    forms = [form_of(leaf, names, index) for index, leaf in enumerate(leaves)]
    pairs = (("processes", 1),) if axes is None else checked_axes(axes)
    lowered = lower(plain, pairs, functools.partial(statics.insert, static), tree, forms)
    refuse_axes(plain, None if axes is None else pairs, lowered.is_global, "spmd.jax.export")
    if axes is None and not lowered.is_global:
        raise UsageError('spmd.jax.export needs the axes of the view of one process, such as axes={"data": 4}')
    if lowered.outside:
        raise UsageError("the function closes over a jax.Ref, which cannot be exported: give it as an argument")
    check_no_callbacks(lowered.module)
    name_arguments(lowered.module, [names[index] for index in lowered.kept])
    if path is not None:
        write_file(path, lowered.module.to_string(debug_info=True).encode("utf-8", "surrogateescape"))
    return lowered.module
