"""Quantized element types. Source: StableHLO specification, "Quantized tensors"; the quant dialect's spelling."""

from __future__ import annotations

from dataclasses import dataclass

from spmd.support.arrays import DType
from spmd.types.base import Type
from spmd.types.element import ElementType


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedType(Type):
    """A quantized element type (specification: "Quantized types"), per tensor, per axis, or per block.

    `scales` and `zero_points` hold one entry a slice along `quantization_dimension` (one entry in all when it is
    None). `block_sizes` maps dimension to block size for sub-channel quantization; entries are then in row-major
    order of blocks, of shape `block_shape`. Scales are Python floats of the expressed type's value.
    """

    storage: ElementType
    expressed: ElementType
    storage_min: int
    storage_max: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    quantization_dimension: int | None = None
    block_sizes: tuple[tuple[int, int], ...] = ()
    block_shape: tuple[int, ...] = ()

    @property
    def is_per_axis(self) -> bool:
        """Whether scales and zero points vary along one dimension."""
        return self.quantization_dimension is not None

    @property
    def kind(self) -> str:
        """The kind of an element type, here always the same."""
        return "quantized"

    @property
    def numpy(self) -> DType | None:
        return self.storage.numpy

    @property
    def dtype(self) -> DType:
        """The storage dtype: a quantized tensor is represented by its storage array."""
        return self.storage.dtype

    @property
    def bits(self) -> int:
        """The width of the storage type in bits."""
        return self.storage.bits

    is_boolean = is_signed = is_unsigned = is_integer = is_float = is_complex = is_index = False

    def __str__(self) -> str:
        return _format_quantized(self)

    __repr__ = __str__


def storage_range(storage: ElementType) -> tuple[int, int]:
    """(smallest, largest) integer of an integer storage type."""
    if storage.is_unsigned:
        return 0, 2**storage.bits - 1
    return -(2 ** (storage.bits - 1)), 2 ** (storage.bits - 1) - 1


def _format_quantized(quantized: QuantizedType) -> str:
    def parameter(scale: float, zero_point: int) -> str:
        text = _format_scale(scale)
        return f"{text}:{zero_point}" if zero_point else text

    text = quantized.storage.name.replace("ui", "u")
    if (quantized.storage_min, quantized.storage_max) != storage_range(quantized.storage):
        text += f"<{quantized.storage_min}:{quantized.storage_max}>"
    text += f":{quantized.expressed}"
    parameters = [parameter(*pair) for pair in zip(quantized.scales, quantized.zero_points, strict=True)]
    if quantized.block_sizes:
        blocks = ", ".join(f"{dimension}:{size}" for dimension, size in quantized.block_sizes)
        text += f":{{{blocks}}}, {_nest(parameters, quantized.block_shape)}"
    elif quantized.quantization_dimension is not None:
        text += f":{quantized.quantization_dimension}, {{{', '.join(parameters)}}}"
    else:
        text += f", {parameters[0]}"
    return f"!quant.uniform<{text}>"


def _nest(items: list[str], shape: tuple[int, ...]) -> str:
    if len(shape) <= 1:
        return "{" + ", ".join(items) + "}"
    step = len(items) // shape[0]
    return "{" + ", ".join(_nest(items[i : i + step], shape[1:]) for i in range(0, len(items), step)) + "}"


def _format_scale(scale: float) -> str:
    short = f"{scale:.6e}"
    text = short if float(short) == scale else repr(scale)
    return text if "." in text or "e" not in text else text.replace("e", ".0e", 1)
