"""Bytecode encodings of attributes and types by dialect: one declaration per code, for reading and writing."""

from spmd.artifacts.encodings.builtin import BUILTIN
from spmd.artifacts.encodings.fields import DialectEncodings
from spmd.artifacts.encodings.sdy import SDY
from spmd.artifacts.encodings.stablehlo import CHLO, STABLEHLO
from spmd.artifacts.encodings.vhlo import VHLO

#: Dialects with encodings; entries of other dialects are text.
DIALECTS: dict[str, DialectEncodings] = {
    "builtin": BUILTIN,
    "stablehlo": STABLEHLO,
    "chlo": CHLO,
    "vhlo": VHLO,
    "sdy": SDY,
}
