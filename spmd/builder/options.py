"""Option types of operations: padding, dimension numbers, replica groups, channels.

Names and fields are those of xla_data.proto, as used in the XlaBuilder operation semantics. Structures that
StableHLO has too wrap its attributes under XLA's field names.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from spmd.dialects import structs


class Padding(enum.Enum):
    """SAME pads so that, at stride 1, the output has the input's shape; VALID does not pad."""

    SAME = "SAME"
    VALID = "VALID"
    kSame = "SAME"
    kValid = "VALID"


PaddingType = Padding


class FftType(enum.Enum):
    FFT = "FFT"
    IFFT = "IFFT"
    RFFT = "RFFT"
    IRFFT = "IRFFT"


class RandomAlgorithm(enum.Enum):
    RNG_DEFAULT = "DEFAULT"
    RNG_THREE_FRY = "THREE_FRY"
    RNG_PHILOX = "PHILOX"
    rng_default = "DEFAULT"
    rng_three_fry = "THREE_FRY"
    rng_philox = "PHILOX"


class Transpose(enum.Enum):
    """The transformation that TriangularSolve applies to `a` first."""

    NO_TRANSPOSE = "NO_TRANSPOSE"
    TRANSPOSE = "TRANSPOSE"
    ADJOINT = "ADJOINT"


TriangularSolveOptions_Transpose = Transpose


class ChannelType(enum.IntEnum):
    """The kinds of endpoints of a channel: devices or the host."""

    CHANNEL_TYPE_INVALID = 0
    DEVICE_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    HOST_TO_DEVICE = 3


@dataclass
class PaddingConfigDimension:
    """Padding of one dimension: at both ends (negative: crops) and between elements."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass
class PaddingConfig:
    """One PaddingConfigDimension per dimension; can be made from (low, high, interior) triples."""

    dimensions: list[PaddingConfigDimension] = field(default_factory=list)

    def __init__(self, dimensions: Iterable[PaddingConfigDimension | Sequence[int]] = ()) -> None:
        self.dimensions = [
            entry if isinstance(entry, PaddingConfigDimension) else PaddingConfigDimension(*entry)
            for entry in dimensions
        ]

    def add_dimensions(self, low: int = 0, high: int = 0, interior: int = 0) -> PaddingConfigDimension:
        self.dimensions.append(PaddingConfigDimension(low, high, interior))
        return self.dimensions[-1]


@dataclass
class DotDimensionNumbers:
    lhs_contracting_dimensions: list[int] = field(default_factory=list)
    rhs_contracting_dimensions: list[int] = field(default_factory=list)
    lhs_batch_dimensions: list[int] = field(default_factory=list)
    rhs_batch_dimensions: list[int] = field(default_factory=list)

    def add_lhs_contracting_dimensions(self, dimension: int) -> None:
        self.lhs_contracting_dimensions.append(dimension)

    def add_rhs_contracting_dimensions(self, dimension: int) -> None:
        self.rhs_contracting_dimensions.append(dimension)

    def add_lhs_batch_dimensions(self, dimension: int) -> None:
        self.lhs_batch_dimensions.append(dimension)

    def add_rhs_batch_dimensions(self, dimension: int) -> None:
        self.rhs_batch_dimensions.append(dimension)

    def attribute(self) -> structs.DotDimensionNumbersAttr:
        return structs.DotDimensionNumbersAttr(
            tuple(self.lhs_batch_dimensions),
            tuple(self.rhs_batch_dimensions),
            tuple(self.lhs_contracting_dimensions),
            tuple(self.rhs_contracting_dimensions),
        )


def _fields(numbers: ConvolutionDimensionNumbers | GatherDimensionNumbers | ScatterDimensionNumbers) -> dict[str, Any]:
    """Return the fields of StableHLO's corresponding attribute, by name."""
    values = {entry.name: getattr(numbers, entry.name) for entry in fields(numbers)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


@dataclass
class ConvolutionDimensionNumbers:
    """The roles of the dimensions of input, kernel and output; the default is batch, feature, then spatial.

    For two spatial dimensions: input and output {batch, feature, y, x}, kernel {output feature, input feature, y, x}.
    """

    input_batch_dimension: int = 0
    input_feature_dimension: int = 1
    input_spatial_dimensions: list[int] = field(default_factory=list)
    kernel_output_feature_dimension: int = 0
    kernel_input_feature_dimension: int = 1
    kernel_spatial_dimensions: list[int] = field(default_factory=list)
    output_batch_dimension: int = 0
    output_feature_dimension: int = 1
    output_spatial_dimensions: list[int] = field(default_factory=list)

    @classmethod
    def default(cls, spatial: int) -> ConvolutionDimensionNumbers:
        """Return the default numbers for `spatial` spatial dimensions."""
        places = range(2, 2 + spatial)
        return cls(0, 1, list(places), 0, 1, list(places), 0, 1, list(places))

    def attribute(self) -> structs.ConvDimensionNumbersAttr:
        return structs.ConvDimensionNumbersAttr(**_fields(self))


@dataclass
class GatherDimensionNumbers:
    offset_dims: list[int] = field(default_factory=list)
    collapsed_slice_dims: list[int] = field(default_factory=list)
    start_index_map: list[int] = field(default_factory=list)
    index_vector_dim: int = 0
    operand_batching_dims: list[int] = field(default_factory=list)
    start_indices_batching_dims: list[int] = field(default_factory=list)

    def attribute(self) -> structs.GatherDimensionNumbersAttr:
        return structs.GatherDimensionNumbersAttr(**_fields(self))


@dataclass
class ScatterDimensionNumbers:
    update_window_dims: list[int] = field(default_factory=list)
    inserted_window_dims: list[int] = field(default_factory=list)
    scatter_dims_to_operand_dims: list[int] = field(default_factory=list)
    index_vector_dim: int = 0
    input_batching_dims: list[int] = field(default_factory=list)
    scatter_indices_batching_dims: list[int] = field(default_factory=list)

    def attribute(self) -> structs.ScatterDimensionNumbersAttr:
        return structs.ScatterDimensionNumbersAttr(**_fields(self))


@dataclass
class ReplicaGroup:
    """The ids of the replicas of one group, in the group's order."""

    replica_ids: list[int] = field(default_factory=list)


@dataclass
class ChannelHandle:
    """The identifier of a send/recv pair."""

    handle: int = 0
    type: ChannelType = ChannelType.DEVICE_TO_DEVICE


class Precision(enum.Enum):
    """The numerical precision of a contraction."""

    DEFAULT = "DEFAULT"
    HIGH = "HIGH"
    HIGHEST = "HIGHEST"


#: Inside PrecisionConfig the name means its class attribute.
_Precision = Precision


@dataclass
class PrecisionConfig:
    """Precision of each operand of a contraction."""

    Precision: ClassVar[type[_Precision]] = _Precision

    operand_precision: list[_Precision | str] = field(default_factory=list)


def make_padding(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], padding: Padding | str
) -> list[tuple[int, int]]:
    """Return (low, high) of every dimension for SAME or VALID padding; `window` includes its dilation.

    SAME gives ceil(size / stride) positions; an odd element of padding goes to the high end.
    """
    if Padding(padding) is Padding.VALID:
        return [(0, 0)] * len(sizes)
    size, width, stride = (np.asarray(values, dtype=np.int64) for values in (sizes, window, strides))
    total = np.maximum((-(-size // stride) - 1) * stride + width - size, 0)
    return [(low, high) for low, high in zip((total // 2).tolist(), (total - total // 2).tolist(), strict=True)]


MakePadding = make_padding


def window_padding_type_to_pad_values(
    padding_type: Padding | str, lhs_dims: Sequence[int], rhs_dims: Sequence[int], window_strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Return `make_padding` in xla_client's order of arguments."""
    return make_padding(lhs_dims, rhs_dims, window_strides, padding_type)


def make_padding_config(padding_config: PaddingConfig | Iterable[Sequence[int]]) -> PaddingConfig:
    """Return a PaddingConfig from (low, high, interior) triples."""
    return padding_config if isinstance(padding_config, PaddingConfig) else PaddingConfig(padding_config)


def make_replica_groups(replica_groups: Iterable[Iterable[int]] | None) -> list[ReplicaGroup]:
    """Return ReplicaGroups from sequences of ids; none for one group of all replicas."""
    return [ReplicaGroup(list(group)) for group in replica_groups or ()]


#: ((lhs contracting, rhs contracting), (lhs batch, rhs batch)).
DimensionPairs = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def make_dot_dimension_numbers(dimension_numbers: DotDimensionNumbers | DimensionPairs) -> DotDimensionNumbers:
    """Return DotDimensionNumbers from ((lhs contracting, rhs contracting), (lhs batch, rhs batch))."""
    if isinstance(dimension_numbers, DotDimensionNumbers):
        return dimension_numbers
    (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = dimension_numbers
    return DotDimensionNumbers(list(lhs_contracting), list(rhs_contracting), list(lhs_batch), list(rhs_batch))


def make_convolution_dimension_numbers(
    dimension_numbers: ConvolutionDimensionNumbers | tuple[str, str, str] | None, num_spatial_dimensions: int
) -> ConvolutionDimensionNumbers:
    """Return ConvolutionDimensionNumbers from labels such as ("NHWC", "HWIO", "NHWC"); the default is NCHW, OIHW.

    N is the batch, C the features, I and O the kernel's input and output features; all other letters are spatial
    dimensions, in the order in which the input's labels have them.
    """
    if dimension_numbers is None:
        return ConvolutionDimensionNumbers.default(num_spatial_dimensions)
    if isinstance(dimension_numbers, ConvolutionDimensionNumbers):
        return dimension_numbers
    lhs, rhs, out = dimension_numbers
    space = [letter for letter in lhs if letter not in "NC"]
    places = [[labels.index(letter) for letter in space] for labels in dimension_numbers]
    return ConvolutionDimensionNumbers(
        lhs.index("N"), lhs.index("C"), places[0], rhs.index("O"), rhs.index("I"), places[1], out.index("N"),
        out.index("C"), places[2],
    )  # fmt: skip
