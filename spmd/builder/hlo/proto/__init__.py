"""Programs that XLA keeps as protocol buffers: HloModuleProto, and what holds one, HloProto and HloSnapshot."""

from __future__ import annotations

from spmd.builder.hlo.proto.files import hlo_file, read_hlo_proto

__all__ = ["hlo_file", "read_hlo_proto"]
