"""What is said of the order in which ops work."""

from __future__ import annotations

#: The attribute of a reduction of one monoid over one dimension whose elements are combined one after another, from
#: the first; the initial value is neutral. A reduction between processes has that order when it is stacked. It is of no
#: dialect, so that any tool reads it.
IN_ORDER = "spmd_in_order"
