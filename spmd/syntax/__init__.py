"""Text to programs and back. Source: MLIR's language reference; StableHLO's assembly formats."""

from spmd.syntax import copies as _copies  # noqa: F401  (registers itself)
from spmd.syntax import forms as _forms  # noqa: F401  (registers the directives)
from spmd.syntax.equal import difference, same_program
from spmd.syntax.files import split_file
from spmd.syntax.parser import parse
from spmd.syntax.printer import print_op

__all__ = ["difference", "parse", "print_op", "same_program", "split_file"]
