"""Store equal attributes and reducers of a text once.

Programs repeat themselves: the layers of a network have the same attributes, and sums the same reducer. Attributes and
reducers are never changed in place, so equal ones can be one object.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from spmd.dialects.core import OpDef
from spmd.dialects.make import make_reducer
from spmd.ir import AttributeValue, Region
from spmd.ir.attributes import DenseAttr
from spmd.types import TensorType

#: How many different dictionaries are searched: a program whose attributes are all different shares none anyway.
_MOST = 1 << 8
_SIMPLE = (bool, int, str, tuple, DenseAttr)


class Shared:
    """The attributes and reducers parsed so far."""

    def __init__(self) -> None:
        self._dictionaries: dict[Hashable, Mapping[str, AttributeValue]] = {}
        self._reducers: dict[tuple[OpDef, TensorType], tuple[Region, ...]] = {}

    def attributes(
        self, definition: OpDef | None, attributes: Mapping[str, AttributeValue]
    ) -> Mapping[str, AttributeValue]:
        """Return `attributes` of an op of this declaration, or equal ones from before."""
        key: list[Hashable] = [definition]
        for name, value in attributes.items():
            kind: Any = type(value)
            if kind is DenseAttr:
                value = id(value)
            elif kind is tuple and value:
                kind = type(value[0])
            if kind not in _SIMPLE and not _is_simple(kind):
                return attributes
            key += name, value
        try:
            shared = self._dictionaries.setdefault(tuple(key), attributes)
        except TypeError:  # a tuple of what has no hash
            return attributes
        if len(self._dictionaries) > _MOST:
            self._dictionaries.clear()
        return shared

    def reducer(self, definition: OpDef, scalar: TensorType) -> tuple[Region, ...]:
        """Return the region that applies an op to two scalars. Its ops have the location of the enclosing op."""
        regions = self._reducers.get((definition, scalar))
        if regions is None:
            regions = self._reducers[definition, scalar] = (make_reducer(definition.name, scalar),)
        return regions


@cache
def _is_simple(kind: object) -> bool:
    """Return whether values of type `kind` compare quickly, and are the same when equal: unlike 0.0 and -0.0."""
    return is_dataclass(kind) and not any(
        word in str(entry.type) for entry in fields(kind) for word in ("Attribute", "Any", "float")
    )
