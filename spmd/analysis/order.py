"""Attribute that fixes the order of a reduction."""

from __future__ import annotations

#: The attribute of a reduction by one monoid over one dimension that must combine elements sequentially, from the
#: first; the initial value is the identity. Reductions across processes have that order when they are stacked. It
#: belongs to no dialect, so that any tool can parse it.
IN_ORDER = "spmd_in_order"
