"""The reference's reader and writer of bytecode, by way of jaxlib's bindings."""

import io

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tests.reference import context

#: The versions of VHLO that brought something, as far as jaxlib has them.
VERSIONS = (
    "0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.14.0", "0.15.0", "0.16.0", "0.17.0", "0.18.0", "0.19.0", "0.20.0",
    *(f"1.{minor}.0" for minor in range(int(stablehlo.get_current_version().split(".")[1]) + 1)),
)  # fmt: skip


def bytecode(text: str, version: int) -> bytes:
    """The program as the reference writes it in a version of the format."""
    with context():
        out = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(out, desired_version=version)
        return out.getvalue()


def portable(text: str, version: str) -> bytes | None:
    """The program as the reference's portable artifact; None where that version cannot hold it."""
    with context():
        try:
            return stablehlo.serialize_portable_artifact(ir.Module.parse(text), version, True)
        except ValueError:
            return None


def text_of(data: bytes, *, debug_info: bool = False) -> str:
    """What the reference reads in text, bytecode of StableHLO or a portable artifact, in the generic form."""
    with context() as own:
        portable = b"StableHLO_v" in data[:32]
        module = stablehlo.deserialize_portable_artifact(own, data) if portable else ir.Module.parse(data)
        return module.operation.get_asm(print_generic_op_form=True, enable_debug_info=debug_info)
