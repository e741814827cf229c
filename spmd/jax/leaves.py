"""Conversion between leaves of JAX's trees and spmd's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.ref import Ref
from jax.sharding import NamedSharding

from spmd.errors import UsageError
from spmd.jax.local_arrays import ProcessLocalArray
from spmd.support.arrays import Array, Tree


@dataclass(frozen=True)
class AbstractLeaf:
    """The abstract value that JAX compiles a function for: shape, dtype (JAX's own for typed keys), weak type.

    `sharding` is the layout over a mesh with explicit axes, with which JAX traces the function. `is_ref` marks the
    value of a jax.Ref, which the function may change.
    """

    shape: tuple[int, ...]
    dtype: Any
    weak: bool = False
    sharding: NamedSharding | None = None
    is_ref: bool = False

    @property
    def is_key(self) -> bool:
        """Whether its elements are typed PRNG keys, which are passed as their data."""
        return bool(jax.numpy.issubdtype(self.dtype, jax.dtypes.prng_key))

    @property
    def data_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds its data."""
        return tuple(jax.eval_shape(jax.random.key_data, self.struct).shape) if self.is_key else self.shape

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        """The `jax.ShapeDtypeStruct` of the leaf."""
        return jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            self.shape, self.dtype, weak_type=self.weak, sharding=self.sharding
        )

    def __str__(self) -> str:
        cut = "" if self.sharding is None else f" cut as {self.sharding.spec}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{cut}"


def form_of(leaf: Tree, names: Sequence[str], index: int) -> AbstractLeaf:
    """Return the form in which jax.jit takes `leaf`; UsageError, with `names[index]`, if it takes no such leaf."""
    if leaf.__class__ is np.ndarray and (known := _canonical.get(leaf.dtype)) is not None:
        return AbstractLeaf(leaf.shape, known)
    if isinstance(leaf, np.ma.MaskedArray):
        raise UsageError(
            f"{names[index]} is a masked array, whose mask JAX would drop: fill it first (`.filled(value)`)"
        )
    if isinstance(leaf, jax.core.Tracer):
        raise UsageError(
            f"{names[index]} is a value that JAX is tracing, and this function runs on arrays: "
            "give spmd.jax.jit the outermost function, with what differentiates or maps inside"
        )
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        raise UsageError(f"{names[index]} is a jax array that is deleted: it was donated, or deleted by hand")
    if isinstance(leaf, jax.ShapeDtypeStruct):
        sharding = leaf.sharding if isinstance(leaf.sharding, NamedSharding) else None
        return AbstractLeaf(tuple(leaf.shape), leaf.dtype, bool(leaf.weak_type), sharding)
    if isinstance(leaf, Ref):
        return replace(form_of(leaf[...], names, index), sharding=None, is_ref=True)
    if isinstance(leaf, ProcessLocalArray):
        return replace(form_of(leaf.block, names, index), shape=leaf.shape, sharding=leaf.sharding)
    if isinstance(leaf, str | bytes):
        raise UsageError(
            f"{names[index]} is of type {type(leaf).__name__}, of which JAX makes no array: a value that the function "
            "is compiled for is named in static_argnums= or static_argnames="
        )
    if is_foreign(leaf):
        return form_of(from_foreign(leaf, names, index), names, index)
    try:
        known_type = jax.api_util.shaped_abstractify(leaf)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, OverflowError) else "JAX makes no array of it"
        of_elements = f" of {leaf.dtype}" if isinstance(leaf, np.ndarray) else ""
        raise UsageError(f"{names[index]} is of type {type(leaf).__name__}{of_elements}: {reason}") from error
    return AbstractLeaf(tuple(known_type.shape), known_type.dtype, bool(known_type.weak_type), _explicit_sharding(leaf))


def _explicit_sharding(leaf: Tree) -> NamedSharding | None:
    """Return the sharding of a JAX array committed to a mesh with explicit axes, which is part of its type in JAX."""
    if (
        not isinstance(leaf, jax.Array)
        or not getattr(leaf, "committed", False)
        or not isinstance(leaf.sharding, NamedSharding)
    ):
        return None
    is_explicit = jax.sharding.AxisType.Explicit in leaf.sharding.mesh.axis_types
    return leaf.sharding if is_explicit else None


def is_foreign(leaf: Tree) -> bool:
    """Return whether `leaf` is an array of another library, such as a PyTorch tensor, to be passed by DLPack."""
    return hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray | np.generic | jax.Array)


def from_foreign(leaf: Tree, names: Sequence[str], index: int) -> Array:
    """Return an array of another library as NumPy's; UsageError if it is not in this machine's memory."""
    name = type(leaf).__module__.partition(".")[0] + "." + type(leaf).__name__
    plain = leaf.detach() if hasattr(leaf, "detach") else leaf  # PyTorch refuses tensors that require gradients
    try:
        return np.from_dlpack(plain)
    except (RuntimeError, TypeError, ValueError, BufferError):
        pass  # element types that NumPy lacks, such as bfloat16
    try:
        return np.asarray(jax.dlpack.from_dlpack(plain))
    except (RuntimeError, TypeError, ValueError, BufferError) as error:
        raise UsageError(
            f"{names[index]} is a {name}, of which DLPack makes no array here ({str(error).splitlines()[0]}): "
            "tensors are taken that lie in the memory of the CPU"
        ) from error


#: dtypes that do not depend on x64.
_canonical = {
    np.dtype(name): np.dtype(name) for name in ("float32", "int32", "uint8", "int8", "bool", "float16", "uint32")
}


def to_array(leaf: Tree, form: AbstractLeaf) -> Array:
    """Return the elements of `leaf`, which has `form`; without a copy where possible, except for a ref."""
    if isinstance(leaf, Ref):
        return np.array(to_array(leaf[...], form))
    if form.is_key:
        return np.asarray(jax.random.key_data(leaf))
    if isinstance(leaf, ProcessLocalArray):
        return np.asarray(leaf.block, form.dtype)
    if is_foreign(leaf):
        return np.asarray(from_foreign(leaf, ("an argument",), 0), form.dtype)
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise UsageError(f"a jax.ShapeDtypeStruct, {form}, holds no elements: lower, executable and export take it")
    if form.dtype == jax.dtypes.float0:
        return np.zeros(form.shape, np.bool_)  # as JAX lowers it
    return np.asarray(leaf, form.dtype)


#: Makes the array of a leaf; None if it has another form than the leaf that it was made for.
Taker = Callable[[Tree], Array | None]
#: Types whose values all have one form.
_SCALARS = frozenset((bool, int, float, complex, *(np.dtype(code).type for code in "?bBhHiIlLqQefdFD")))


def taker_of(leaf: Tree, form: AbstractLeaf) -> Taker:
    """Return what makes arrays of leaves of the type of `leaf`, whose form is `form`, under the same settings of JAX.

    A leaf that it takes is not examined again: of a scalar the type says everything, of a jax.Array its abstract value,
    of which JAX has one object.
    """
    if leaf.__class__ in _SCALARS:
        return partial(_scalar, dtype=form.dtype)
    if isinstance(leaf, jax.Array) and form.sharding is None and not form.is_key:
        return partial(_jax_array, aval=leaf.aval, form=form)
    return partial(_any, form=form)


def _scalar(leaf: Tree, dtype: Any) -> Array | None:
    try:
        return np.asarray(leaf, dtype)
    except OverflowError:
        return None


def _jax_array(leaf: Tree, aval: Tree, form: AbstractLeaf) -> Array | None:
    return np.asarray(leaf) if leaf.aval is aval and not leaf.is_deleted() else _any(leaf, form)


def _any(leaf: Tree, form: AbstractLeaf) -> Array | None:
    try:
        same = form_of(leaf, ("",), 0) == form
    except UsageError:
        return None
    return to_array(leaf, form) if same else None


def refuse(leaf: Tree) -> None:
    """Take no leaf: the taker of those that are cut to blocks."""


def taken(leaves: Sequence[Tree], takers: Sequence[tuple[int, Taker]]) -> list[Tree] | None:
    """Return `leaves` with the arrays that `takers`, by number of the leaf, make; None if one makes none."""
    arrays = list(leaves)
    for index, take in takers:
        array = take(leaves[index])
        if array is None:
            return None
        arrays[index] = array
    return arrays


def from_array(array: Array, form: AbstractLeaf, as_jax: bool) -> Tree:
    """Return the leaf of `form` with the elements `array`."""
    if form.is_key:
        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=form.dtype._impl)
    if form.dtype == jax.dtypes.float0:
        return np.zeros(form.shape, form.dtype)
    return jax.numpy.asarray(array) if as_jax else array


def data_shape(leaf: Tree) -> tuple[int, ...]:
    """Return the shape of the array that holds the data of `leaf`."""
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return tuple(leaf.shape) if hasattr(leaf, "shape") else np.shape(leaf)


def with_data(leaf: Tree, change: Callable[[Array], Array]) -> Tree:
    """Return `leaf` with `change` applied to its array."""
    if _is_key(leaf):
        changed = change(np.asarray(jax.random.key_data(leaf)))
        return jax.random.wrap_key_data(jax.numpy.asarray(changed), impl=jax.random.key_impl(leaf))
    return change(np.asarray(leaf))


def _is_key(leaf: Tree) -> bool:
    return bool(jax.numpy.issubdtype(getattr(leaf, "dtype", np.bool_), jax.dtypes.prng_key))


def names_of(tree: Tree, parameters: Sequence[str]) -> list[str]:
    """Return each leaf of (args, kwargs) as a user writes it: `params['w']`. `parameters` names the positional ones."""
    names = []
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        first, rest = path[1], path[2:]
        if path[0].idx == 0:
            head = parameters[first.idx] if first.idx < len(parameters) else f"argument {first.idx}"
        else:
            head = str(first.key)
        names.append(head + jax.tree_util.keystr(rest))
    return names
