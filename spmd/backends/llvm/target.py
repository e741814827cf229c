"""The schedule's view of native code: supported ops, their tasks and scratch memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from spmd.backends.c_targets import can_be_linked
from spmd.backends.llvm.emit.native_ops import NATIVE, supports
from spmd.backends.llvm.fft import transforms as _fft
from spmd.backends.llvm.jit.processor import chosen
from spmd.backends.llvm.matmul import convolutions as _convolutions
from spmd.backends.llvm.matmul import products as _products
from spmd.backends.llvm.matmul.matrices import Product, product_of
from spmd.backends.llvm.ops import control_flow as _control_flow
from spmd.backends.llvm.ops import custom_calls as _custom_calls
from spmd.backends.llvm.ops import lapack as _lapack
from spmd.backends.llvm.ops import scan as _scan
from spmd.backends.llvm.ops import top_k as _top_k
from spmd.compiler.schedule.target import LibraryPlan
from spmd.ir import Op
from spmd.support.processor import Processor

#: Modules that register ops in native_ops.NATIVE.
FORMS = (_control_flow, _convolutions, _custom_calls, _fft, _lapack, _products, _scan, _top_k)


@dataclass(frozen=True)
class LlvmTarget:
    """Native code for `processor`, run by up to `threads`.

    `in_fixed_order`: products are summed in one order on every processor, without BLAS. `is_linked`: it is an object
    file's, where unknown custom-call targets become external symbols.
    """

    threads: int = 1
    processor: Processor = field(default_factory=chosen)
    in_fixed_order: bool = False
    is_linked: bool = False

    def supports(self, op: Op) -> bool:
        return supports(op) or (self.is_linked and can_be_linked(op))

    def plan(self, op: Op, image_bytes: int | None) -> LibraryPlan:
        return NATIVE[op.name].plan(op, self, image_bytes)

    def product(self, op: Op) -> Product | None:
        return product_of(op, in_fixed_order=self.in_fixed_order)
