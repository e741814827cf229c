"""Execution op by op in Python, under jax_disable_jit: values can be printed and branched on.

JAX computes each op immediately; an op that communicates is a separate program, which all processes run. With stacked
processes each op is computed for all of them at once, and Python cannot branch on values that differ between them.
Source: JAX's documentation, "jax.disable_jit".
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import jax
import numpy as np
from jax.core import Trace, Tracer, eval_context
from jax.extend.core import set_current_trace

from spmd.errors import UsageError
from spmd.jax import modules
from spmd.jax.equations import equations_within
from spmd.jax.leaves import AbstractLeaf, form_of, from_array, to_array
from spmd.jax.places import raising_line
from spmd.jax.process_view import Axes
from spmd.jax.tracing import axes_in_messages
from spmd.jax.wrapped import has_shardings
from spmd.support.arrays import Array, Tree, UserFunction

#: Makes a function run on all processes, compiled: on this process's arrays, or on stacked ones.
Compile = Callable[[UserFunction], Callable[..., Tree]]
#: Primitives of the global view, which is written for whole arrays, while a process has blocks only.
_OF_A_MESH = frozenset(("sharding_constraint", "reshard"))


def run_op_by_op(
    function: UserFunction,
    axes: Axes,
    compile: Compile,
    leaves: Sequence[Tree],
    stacked: Sequence[bool] | None = None,
    as_jax: bool = False,
) -> Tree:
    """Return the results of `function` of `leaves` as a process of a mesh of `axes`, each op computed immediately.

    `leaves` are those of `as_value`. `stacked` marks those with a leading axis of all processes, which all results then
    have; None on one process of many.
    """
    trace = _OpByOp(axes, compile, stacked is not None)
    given: list[Tree] = []

    def within() -> tuple[()]:
        values = [_Value(trace, *each) for each in zip(leaves, stacked or [False] * len(leaves), strict=True)]
        with set_current_trace(trace):  # type: ignore[no-untyped-call]
            given.append(function(*values))
        return ()

    with axes_in_messages(axes, function), _lines_in_messages():
        jax.make_jaxpr(within, axis_env=axes)()  # within which the axes have their sizes
    count = None if stacked is None else math.prod(size for _, size in axes)
    tree: Tree
    results, tree = jax.tree.flatten(given[0])
    static = modules.static_places(tree, results)
    return tree.unflatten(
        [leaf if at in static else _result(leaf, f"result {at}", count, as_jax) for at, leaf in enumerate(results)]
    )


def as_value(leaf: Tree, form: AbstractLeaf) -> Tree:
    """Return an argument of `form` as a JAX array; refs are unchanged."""
    if form.is_ref:
        return leaf
    with jax.debug_nans(False), jax.debug_infs(False):  # JAX checks arguments as well
        return jax.numpy.asarray(leaf) if form.weak else from_array(to_array(leaf, form), form, as_jax=True)


def refuse_global_view(what: str) -> NoReturn:
    """Raise UsageError: `what` belongs to the global view."""
    raise UsageError(
        f"{what} is of the global view, which does not run op by op: a process holds blocks of its arrays. "
        "Leave jax_disable_jit off for it, or write the function for one process"
    )


def refuse_shardings(function: UserFunction) -> None:
    """Raise UsageError for a function with shardings made by jax.jit."""
    if has_shardings(function):
        refuse_global_view("a function with in_shardings or out_shardings")


@contextlib.contextmanager
def _lines_in_messages() -> Iterator[None]:
    """Add the user's line to JAX's error for a NaN or an infinity."""
    try:
        yield
    except FloatingPointError as error:
        if str(error).startswith("invalid value"):
            error.args = (f"{raising_line(error.__traceback__)}{error}",)
        raise


class _Value(Tracer):  # type: ignore[type-arg]  # its parameter is newer than JAX 0.10
    """The array `value`, which JAX's collectives do not treat as a constant equal on all processes.

    With `is_stacked` it has a leading axis of all processes, which the function does not see.
    """

    __slots__ = ("is_stacked", "value")

    def __init__(self, trace: _OpByOp, value: Tree, is_stacked: bool = False) -> None:
        whole = jax.typeof(value)
        super().__init__(trace, whole.update(shape=whole.shape[1:]) if is_stacked else whole)
        self.value = value
        self.is_stacked = is_stacked

    def to_concrete_value(self) -> Tree:
        """Return the value, which Python may branch on; None if it differs between processes."""
        return None if self.is_stacked else self.value

    def tolist(self) -> Tree:
        return self._own().tolist()

    def block_until_ready(self) -> _Value:
        return self

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        return np.asarray(self._own(), *args, **kwargs)

    def __float__(self) -> float:
        return float(self._own())

    def __complex__(self) -> complex:
        return complex(self._own())

    def __format__(self, form: str) -> str:
        return format(self.value, form)

    def __repr__(self) -> str:
        return repr(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def _own(self) -> Tree:
        if self.is_stacked:
            raise UsageError(
                "spmd.jax.simulate computes all processes at once, so that what differs between them has no one value "
                "in Python; a rank of spmd.jax.jit has its own"
            )
        return self.value


class _OpByOp(Trace):
    """Computes ops without communication immediately, and has `compile` run the others."""

    def __init__(self, axes: Axes, compile: Compile, is_stacked: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {name for name, _ in axes}
        self._is_stacked = is_stacked
        self._compile = compile

    def stage_value(self, value: Tree) -> Tree:
        """Return `value`, an array or a Python scalar, as a result of ops."""
        if isinstance(value, _Value):
            return value
        with eval_context():
            return _Value(self, jax.numpy.asarray(value))

    def process_primitive(self, primitive: Any, tracers: Sequence[Tree], params: dict[str, Tree], /) -> Tree:
        """Compute `primitive`."""
        if primitive.name in _OF_A_MESH:
            refuse_global_view(primitive.name)

        def compute(*values: Tree) -> Tree:
            return primitive.bind(*values, **params)

        compute.__name__ = str(primitive.name)
        values = [each.value if isinstance(each, _Value) else each for each in tracers]
        stacked = [isinstance(each, _Value) and each.is_stacked for each in tracers]
        with eval_context():
            if not self._names.isdisjoint(_axes_in(params)):
                return self._communicate(compute, values, stacked)
            if any(stacked):
                results = jax.vmap(compute, tuple(0 if each else None for each in stacked))(*values)
            else:
                results = compute(*values)
        return jax.tree.map(lambda each: _Value(self, each, any(stacked)), results)

    def _communicate(self, compute: UserFunction, values: Sequence[Tree], stacked: Sequence[bool]) -> Tree:
        """Run an op that communicates as a separate program."""
        if self._is_stacked:
            values = [value if is_cut else value[None] for value, is_cut in zip(values, stacked, strict=True)]
        with jax.disable_jit(False):
            results = self._compile(compute)(*values)
        return jax.tree.map(lambda each: _Value(self, jax.numpy.asarray(each), self._is_stacked), results)

    def process_call(self, primitive: Any, function: Any, tracers: Sequence[Tree], params: Tree, /) -> Tree:
        """Run the function of a primitive that calls one."""
        return self._within(function, tracers)

    def process_custom_jvp_call(
        self, primitive: Any, function: Any, jvp: Any, tracers: Sequence[Tree], /, **params: Tree
    ) -> Tree:
        """Run a function with a custom derivative."""
        return self._within(function, tracers)

    def process_custom_vjp_call(
        self, primitive: Any, function: Any, fwd: Any, bwd: Any, tracers: Sequence[Tree], /, **params: Tree
    ) -> Tree:
        """Run a function with a custom derivative."""
        return self._within(function, tracers)

    def process_shard_map(self, *args: Tree, **params: Tree) -> Tree:
        """Reject jax.shard_map."""
        refuse_global_view("jax.shard_map")

    def _within(self, function: Any, tracers: Sequence[Tree]) -> Tree:
        with set_current_trace(self):  # type: ignore[no-untyped-call]
            return function.call_wrapped(*tracers)


def _axes_in(params: Mapping[str, Tree]) -> Iterator[str]:
    """Yield the names of axes in a primitive's parameters, including those of its functions."""
    for each in (params, *(equation.params for equation in equations_within(params))):
        for key in ("axes", "axis_name"):
            value = each.get(key, ())
            yield from (name for name in (value if isinstance(value, tuple) else (value,)) if isinstance(name, str))


def _result(leaf: Tree, name: str, copies: int | None, as_jax: bool) -> Tree:
    """Return a leaf of the results as compiled functions do, repeated `copies` times unless it is stacked."""
    is_stacked = isinstance(leaf, _Value) and leaf.is_stacked
    value = leaf.value if isinstance(leaf, _Value) else leaf
    form = form_of(value, (name,), 0)
    array = to_array(value, form)
    if copies is not None and not is_stacked:
        array = np.broadcast_to(array, (copies, *array.shape))
        form = replace(form, shape=(copies, *form.shape))
    return from_array(np.array(array), form, as_jax)
