"""Contractions. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    compatible_dims,
    dims,
    element_of,
    equal,
    equal_elements,
    in_range,
    is_quantized,
    listed,
    per_axis,
    shape_text,
    tensors,
    unique,
)
from spmd.dialects.core import OpDef, Trait, attribute, define, operand, result
from spmd.dialects.declarations import define_unary
from spmd.dialects.forms import TYPED
from spmd.dialects.shapes import Size, bounds_of, most_specific_size, tensor
from spmd.dialects.structs import DotAlgorithmAttr, DotDimensionNumbersAttr, RaggedDotDimensionNumbersAttr
from spmd.ir import Op
from spmd.types import QuantizedType, TensorType, Type

T = TypeVar("T")

PRECISION_CONFIG = kinds.array_of(kinds.enum("stablehlo", "precision", "DEFAULT", "HIGH", "HIGHEST"))

_PRECISIONS = "size(precision_config) = 2"


def few_precisions(op: Op) -> str | None:
    """Check that there are no precisions or one per operand (frontends may omit the second)."""
    precisions = op["precision_config"]
    return None if precisions is None or len(precisions) <= 2 else str(len(precisions))


def both_precisions(op: Op) -> str | None:
    """Check that there is a precision per operand, or none, which means the default."""
    precisions = op["precision_config"]
    return None if precisions is None or len(precisions) == 2 else str(len(precisions))


def contraction_element(op: Op) -> Type:
    """Return the element type of a product: the declared one if there is one, as accumulation may be wider."""
    return element_of(op.results[0].type if op.results else op.operands[0].type)


DOT = define(
    "stablehlo.dot",
    operands=[operand("lhs"), operand("rhs", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("precision_config", PRECISION_CONFIG, optional=True)],
    results=[result("result", type_sets.TENSOR_OR_PER_AXIS)],
    assembly="$lhs `,` $rhs `` custom<PrecisionConfig>($precision_config) " + TYPED,
    traits=[Trait.PURE],
)

DOT.constraint("", "size(precision_config) <= 2")(few_precisions)


@DOT.constraint("", "lhs and rhs have rank 1 or 2 and share the dimension that is summed over")
def _(op: Op) -> str | None:
    lhs, rhs = tensors(op.operands)
    sound = lhs.rank in (1, 2) and rhs.rank in (1, 2) and compatible_dims(lhs.shape[-1], rhs.shape[0])
    return None if sound else f"{shape_text(lhs.shape)} and {shape_text(rhs.shape)}"


@DOT.infer
def _(op: Op) -> list[Type]:
    lhs, rhs = tensors(op.operands)
    shape, bounds = (*lhs.shape[:-1], *rhs.shape[1:]), (*bounds_of(lhs)[:-1], *bounds_of(rhs)[1:])
    return [tensor(shape, contraction_element(op), bounds)]


DOT_GENERAL = define(
    "stablehlo.dot_general",
    operands=[operand("lhs"), operand("rhs", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[
        attribute("dot_dimension_numbers", kinds.struct(DotDimensionNumbersAttr)),
        attribute("precision_config", PRECISION_CONFIG, optional=True),
        attribute("algorithm", kinds.struct(DotAlgorithmAttr), optional=True),
    ],
    results=[result("result", type_sets.TENSOR_OR_PER_AXIS)],
    assembly="$lhs `,` $rhs `,` custom<DotDimensionNumbers>($dot_dimension_numbers) `` "
    "custom<PrecisionConfigAndAlgorithm>($precision_config, $algorithm) " + TYPED,
    traits=[Trait.PURE],
)

DotNumbers = DotDimensionNumbersAttr | RaggedDotDimensionNumbersAttr


def check_dot(declared: OpDef, name: str, labels: Sequence[str]) -> None:
    """Declare the constraints on dimension numbers `name`: counts, uniqueness, ranges and sizes, with these labels."""

    def numbers(op: Op) -> DotNumbers:
        dot_numbers: DotNumbers = op[name]
        return dot_numbers

    label = iter(labels)
    declared.constraint(next(label), "size(lhs_batching_dimensions) = size(rhs_batching_dimensions)")(
        lambda op: equal(len(numbers(op).lhs_batching_dimensions), len(numbers(op).rhs_batching_dimensions))
    )
    declared.constraint(next(label), "size(lhs_contracting_dimensions) = size(rhs_contracting_dimensions)")(
        lambda op: equal(len(numbers(op).lhs_contracting_dimensions), len(numbers(op).rhs_contracting_dimensions))
    )
    sides = ("lhs", "rhs")
    kinds_of = ("batching", "contracting")
    for side in sides:

        def distinct(op: Op, side: str = side) -> str | None:
            return unique([d for kind in kinds_of for d in getattr(numbers(op), f"{side}_{kind}_dimensions")])

        text = f"is_unique({side}_batching_dimensions + {side}_contracting_dimensions)"
        declared.constraint(next(label), text)(distinct)
    for index, side in enumerate(sides):
        for kind in kinds_of:

            def inside(op: Op, field: str = f"{side}_{kind}_dimensions", index: int = index) -> str | None:
                return in_range(getattr(numbers(op), field), op.operands[index].tensor.rank)

            declared.constraint(next(label), f"0 <= {side}_{kind}_dimensions < rank({side})")(inside)
    for kind in kinds_of:

        def matching(op: Op, kind: str = kind) -> str | None:
            lhs, rhs = (
                [type.shape[d] for d in getattr(numbers(op), f"{side}_{kind}_dimensions")]
                for side, type in zip(sides, tensors(op.operands[:2]), strict=True)
            )
            return None if all(map(compatible_dims, lhs, rhs)) else f"{dims(lhs)} and {dims(rhs)}"

        text = f"dim(lhs, lhs_{kind}_dimensions...) = dim(rhs, rhs_{kind}_dimensions...)"
        declared.constraint(next(label), text)(matching)


check_dot(DOT_GENERAL, "dot_dimension_numbers", [f"C{number}" for number in range(1, 11)])
DOT_GENERAL.constraint("C11", _PRECISIONS)(few_precisions)
DOT_GENERAL.constraint("C11", _PRECISIONS, customary=True)(both_precisions)


@DOT_GENERAL.constraint(
    "C13", "element_type(lhs) = element_type(rhs), or both are real and widened alike", advisory=True
)
def _(op: Op) -> str | None:
    # JAX leaves it to TPUs to widen integers combined with floats; the reference accepts real with complex numbers.
    elements = [element_of(type) for type in op.operand_types]
    is_complex = {type_sets.element_kind(element) == "complex" for element in elements}
    return None if any(map(is_quantized, elements)) or len(is_complex) == 1 else listed(elements)


@DOT_GENERAL.constraint("C13", "element_type(lhs) = element_type(rhs)", customary=True)
def _(op: Op) -> str | None:
    return None if any(map(is_quantized, op.operand_types)) else equal_elements(*op.operand_types)


@DOT_GENERAL.infers("C12", "shape(result) is the batching sizes, then the sizes of what remains of lhs and of rhs")
def _(op: Op) -> list[Type]:
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    lhs, rhs = tensors(op.operands)
    left, right = (list(zip(type.shape, bounds_of(type), strict=True)) for type in (lhs, rhs))
    pairs = zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True)
    sizes: list[Size] = [most_specific_size(i, left[ours], right[theirs]) for i, (ours, theirs) in enumerate(pairs)]
    sizes += free_sizes(left, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    sizes += free_sizes(right, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    return [tensor([size for size, _ in sizes], contraction_element(op), [bound for _, bound in sizes])]


def free_sizes(sizes: Sequence[T], *used: Sequence[int]) -> list[T]:
    """Return the sizes of the dimensions that are in none of `used`."""
    taken = {dimension for dimensions in used for dimension in dimensions}
    return [size for dimension, size in enumerate(sizes) if dimension not in taken]


def _zero_points(op: Op) -> str | None:
    element = op.operands[1].tensor.element_type
    return dims(element.zero_points) if isinstance(element, QuantizedType) and any(element.zero_points) else None


def _contracted_axis(op: Op) -> str | None:
    element = per_axis(op.operands[1].type)
    contracting = op["dot_dimension_numbers"].rhs_contracting_dimensions
    if element is None or element.quantization_dimension not in contracting:
        return None
    return f"{element.quantization_dimension} and {dims(contracting)}"


#: Whether element types of lhs, rhs and result are consistent.
_Rule = Callable[[Type, Type, Type], bool]
_QuantizedRule = Callable[[QuantizedType, QuantizedType, QuantizedType], bool]


def check_quantized_product(declared: OpDef, labels: Sequence[str]) -> None:
    """Declare the constraints on quantized operands of dot_general and convolution, with these labels."""

    def add(label: str, text: str, sound: _Rule) -> None:
        def check(op: Op) -> str | None:
            elements = [element_of(type) for type in (*op.operand_types[:2], op.result.type)]
            return None if not any(map(is_quantized, elements)) or sound(*elements) else listed(elements)

        declared.constraint(label, text, on_results=True)(check)

    def both(lhs: Type, rhs: Type, result: Type) -> tuple[QuantizedType, QuantizedType, QuantizedType] | None:
        if isinstance(lhs, QuantizedType) and isinstance(rhs, QuantizedType) and isinstance(result, QuantizedType):
            return lhs, rhs, result
        return None

    def with_all(sound: _QuantizedRule) -> _Rule:
        def check(lhs: Type, rhs: Type, result: Type) -> bool:
            quantized = both(lhs, rhs, result)
            return quantized is None or sound(*quantized)

        return check

    add(
        labels[0],
        "is_quantized(lhs) = is_quantized(result) and is_quantized(rhs)",
        lambda lhs, rhs, result: is_quantized(rhs) and is_quantized(lhs) == is_quantized(result),
    )
    add(labels[1], "storage_type(lhs) = storage_type(rhs)", with_all(lambda lhs, rhs, _: lhs.storage is rhs.storage))
    add(
        labels[2],
        "expressed_type(lhs) = expressed_type(rhs) = expressed_type(result)",
        with_all(lambda lhs, rhs, result: lhs.expressed is rhs.expressed is result.expressed),
    )
    add(
        labels[3],
        "a per-tensor quantized rhs makes the result per-tensor quantized",
        with_all(lambda lhs, rhs, result: rhs.is_per_axis or not result.is_per_axis),
    )
    add(
        labels[4],
        "element_type(lhs) = expressed_type(rhs) = element_type(result) when lhs is not quantized",
        lambda lhs, rhs, result: (
            is_quantized(lhs) or (isinstance(rhs, QuantizedType) and lhs is rhs.expressed and lhs is result)
        ),
    )


DOT_GENERAL.constraint("C15", "zero_points(rhs) = 0")(_zero_points)
DOT_GENERAL.constraint("C16", "quantization_dimension(rhs) is not in rhs_contracting_dimensions")(_contracted_axis)
check_quantized_product(DOT_GENERAL, ["C14", "C17", "C18", "C19", "C20"])


@DOT_GENERAL.constraint("C21", "precision_config... = DEFAULT when there is an algorithm")
def _(op: Op) -> str | None:
    precisions = op["precision_config"] or ()
    return listed(precisions) if op["algorithm"] is not None and set(precisions) - {"DEFAULT"} else None


EINSUM = define(
    "stablehlo.einsum",
    operands=[operand("lhs"), operand("rhs")],
    attributes=[attribute("einsum_config", kinds.STRING)],
    results=[result("result")],
    assembly="$lhs `,` $rhs `,` `config` `=` $einsum_config " + TYPED,
    traits=[Trait.PURE],
)

UNARY_EINSUM = define_unary(
    "stablehlo.unary_einsum",
    "$operand `,` `config` `=` $einsum_config " + TYPED,
    attribute("einsum_config", kinds.STRING),
)


def einsum_terms(config: str) -> tuple[list[str], str] | None:
    """Return the index letters of each operand and of the result of `ab,bc->ac`; None if malformed.

    A term may begin with `...`, which stands for leading broadcast dimensions.
    """
    inputs, arrow, output = config.replace(" ", "").partition("->")
    terms = inputs.split(",")
    bare = [term.removeprefix("...") for term in (*terms, output)]
    sound = arrow and all(term.isalpha() or not term for term in bare) and set(bare[-1]) <= set("".join(bare[:-1]))
    return (terms, output) if sound else None


def _einsum_sizes(op: Op) -> dict[str, int | None] | None:
    """Return the size of each letter; None if the operands' dimensions do not match the config."""
    parsed, types = einsum_terms(op["einsum_config"]), tensors(op.operands)
    if parsed is None or len(parsed[0]) != len(types):
        return None
    sizes: dict[str, int | None] = {}
    for term, type in zip(parsed[0], types, strict=True):
        letters = term.removeprefix("...")
        if len(letters) > type.rank or (len(letters) < type.rank and letters == term):
            return None
        for letter, size in zip(letters, type.shape[type.rank - len(letters) :], strict=True):
            if not compatible_dims(sizes.get(letter), size):
                return None
            sizes[letter] = size if sizes.get(letter) is None else sizes[letter]
    return sizes


def _einsum_result(op: Op) -> list[Type]:
    parsed, sizes = einsum_terms(op["einsum_config"]), _einsum_sizes(op)
    assert parsed is not None and sizes is not None
    letters = parsed[1].removeprefix("...")
    leading: Sequence[int | None] = ()
    if letters != parsed[1]:  # as many as the operand with the largest number of them has
        pairs = zip(parsed[0], tensors(op.operands), strict=True)
        counts = [type.rank - len(term.removeprefix("...")) for term, type in pairs]
        leading = (None,) * max(counts)
    return [TensorType((*leading, *(sizes[letter] for letter in letters)), contraction_element(op))]


for _einsum in (EINSUM, UNARY_EINSUM):
    _einsum.constraint("", "einsum_config names each dimension of the operands, with one size a letter")(
        lambda op: None if _einsum_sizes(op) is not None else f'"{op["einsum_config"]}" for {listed(op.operand_types)}'
    )
    _einsum.infer(_einsum_result)
