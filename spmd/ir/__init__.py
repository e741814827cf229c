"""The program as data: modules, functions, regions, blocks, ops, values.

The structure is MLIR's: an op has operands, attributes, regions and results; a region has blocks; a block has arguments
and ops. `Module` and `Function` are ops with named accessors for their parts. Source: specification, "Programs".

The modules of this folder define these classes; other packages import them from `spmd.ir`.
"""

from spmd.ir.copying import captured_values, copy_arguments, copy_block, copy_op
from spmd.ir.op import NO_ATTRIBUTES, OP_CLASSES, AttributeValue, Op, new_op, register_printer
from spmd.ir.symbols import Function, Module
from spmd.ir.values import Block, NumberedValue, Region, Value

__all__ = [
    "NO_ATTRIBUTES",
    "OP_CLASSES",
    "AttributeValue",
    "Block",
    "Function",
    "Module",
    "NumberedValue",
    "Op",
    "Region",
    "Value",
    "captured_values",
    "copy_arguments",
    "copy_block",
    "copy_op",
    "new_op",
    "register_printer",
]
