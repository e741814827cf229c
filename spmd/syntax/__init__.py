"""Text to programs and back. Source: MLIR's language reference; StableHLO's assembly formats."""

from spmd.syntax.parser import parse

__all__ = ["parse"]
