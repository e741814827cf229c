"""Errors of communication."""

from __future__ import annotations


class CollectiveError(Exception):
    """Processes disagree at a collective, or one waits in vain."""
