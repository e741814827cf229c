"""How the attributes and types of each dialect stand in bytecode: one declaration a code, for reading and writing."""

from spmd.artifacts.encodings.builtin import BUILTIN
from spmd.artifacts.encodings.fields import DialectEncodings
from spmd.artifacts.encodings.sdy import SDY
from spmd.artifacts.encodings.stablehlo import CHLO, STABLEHLO
from spmd.artifacts.encodings.vhlo import VHLO

#: Dialects with an encoding of their own; what any other one has stands as text.
DIALECTS: dict[str, DialectEncodings] = {
    "builtin": BUILTIN,
    "stablehlo": STABLEHLO,
    "chlo": CHLO,
    "vhlo": VHLO,
    "sdy": SDY,
}
