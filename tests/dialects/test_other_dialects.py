"""What ops beyond the specification must keep: CHLO, deprecated ops, func, arith, shape and the checks of programs."""

from __future__ import annotations

import pytest

import spmd
from spmd.errors import SpmdError

_RAGGED = (
    '"chlo.ragged_dot"(%a, %b, %g) {{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [0], '
    "rhs_batching_dimensions = [1], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2], "
    "lhs_ragged_dimensions = {ragged}, rhs_group_dimensions = {group}>}} : (tensor<2x11x5xf32>, tensor<3x2x5x7xf32>, "
    "tensor<{sizes}xi64>) -> tensor<2x11x7xf32>"
)
_RAGGED_ARGUMENTS = "%a: tensor<2x11x5xf32>, %b: tensor<3x2x5x7xf32>, %g: tensor<{sizes}xi64>"
_SCAN = (
    "chlo.scan(%a) inits(%i) dimension={dimension} {{\n^bb0(%x: {slice}, %y: tensor<2xi32>):\n %s = stablehlo.add %y, "
    "%y : tensor<2xi32>\n stablehlo.return %s, %s : tensor<2xi32>, tensor<2xi32>\n}} : (tensor<2x3xi32>, "
    "tensor<2xi32>) -> (tensor<{output}xi32>, tensor<2xi32>)"
)


def _program(arguments: str, op: str) -> str:
    return f"func.func @program({arguments}) {{\n{op}\nfunc.return\n}}"


def _refused(arguments: str, op: str) -> str:
    with pytest.raises(SpmdError) as refused:
        spmd.parse(_program(arguments, op))
    return str(refused.value).splitlines()[0]


@pytest.mark.parametrize(
    "shapes", ["2x3, 3 -> 2x3", "2x1, 1x3 -> 2x3", "?x3, 2x1 -> 2x3", "0, 4x1 -> 4x0", "4x?,  -> 4x?", "*, 2 -> ?"]
)
def test_chlo_broadcasts_as_numpy_does(shapes: str) -> None:
    operands, _, result = shapes.partition(" -> ")
    left, right, whole = (f"tensor<{shape + 'x' if shape else ''}f32>" for shape in (*operands.split(", "), result))
    types = f"({left}, {right}) -> {whole}"
    spmd.parse(_program(f"%a: {left}, %b: {right}", f"%0 = chlo.broadcast_add %a, %b : {types}"))


@pytest.mark.parametrize(
    ("arguments", "op", "what"),
    [
        (
            "%a: tensor<2xf32>, %b: tensor<3xf32>",
            "%0 = chlo.broadcast_add %a, %b : (tensor<2xf32>, tensor<3xf32>) -> tensor<3xf32>",
            "match or one of them be 1",
        ),
        (
            "%a: tensor<2xf32>, %b: tensor<2x3xf32>",
            "%0 = chlo.broadcast_add %a, %b {broadcast_dimensions = array<i64: 2>} : (tensor<2xf32>, "
            "tensor<2x3xf32>) -> tensor<2x3xf32>",
            "broadcast_dimensions",
        ),
        (
            "%a: tensor<2xf32>, %b: tensor<2xf64>",
            "%0 = chlo.broadcast_divide %a, %b : (tensor<2xf32>, tensor<2xf64>) -> tensor<2xf32>",
            "one baseline_element_type",
        ),
        ("%a: tensor<2xi32>", "%0 = chlo.erf %a : tensor<2xi32> -> tensor<2xi32>", "floating-point"),
        ("%a: tensor<2xf32>", "%0 = chlo.is_inf %a : tensor<2xf32> -> tensor<3xi1>", "operand's shape"),
        (
            "%a: tensor<2x5xf32>",
            "%0:2 = chlo.top_k(%a, k = 6) : tensor<2x5xf32> -> (tensor<2x6xf32>, tensor<2x6xi32>)",
            "0 <= k",
        ),
        (
            "%a: tensor<2xf32>",
            '%0 = "chlo.constant_like"(%a) {value = 1 : i32} : (tensor<2xf32>) -> tensor<2xf32>',
            "result's element type",
        ),
        ("%a: tensor<2xf32>", '%0 = "stablehlo.broadcast"(%a) {broadcast_sizes = array<i64: -1>} : (tensor<2xf32>) -> '
         "tensor<1x2xf32>", "0 <= broadcast_sizes"),
        ("%a: tensor<2x3xf32>, %b: tensor<4xf32>", "%0 = stablehlo.dot %a, %b : (tensor<2x3xf32>, tensor<4xf32>) -> "
         "tensor<2xf32>", "summed over"),
        ("%a: tensor<2x3xf32>, %b: tensor<4x5xf32>", '%0 = stablehlo.einsum %a, %b, config = "ab,bc->ac" : '
         "(tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>", "einsum_config"),
        ("%a: tensor<2xf32>, %s: tensor<1xi32>", "%0 = stablehlo.set_dimension_size %a, %s, dim = 0 : (tensor<2xf32>, "
         "tensor<1xi32>) -> tensor<?xf32>", "scalar"),
        ("%a: tensor<2x3xf32>, %i: tensor<1xi32>", "%0 = stablehlo.real_dynamic_slice %a, %i, %i, %i : "
         "(tensor<2x3xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?x?xf32>", "rank(operand) entries"),
        ("%a: tensor<2xf32>", "%0 = stablehlo.custom_call @f(%a) {operand_layouts = [dense<0> : tensor<1xindex>]} : "
         "(tensor<2xf32>) -> tensor<2xf32>", "given together"),
        ("%a: tensor<2xf32>", '%0 = stablehlo.custom_call @f(%a) {backend_config = "x", api_version = 4 : i32} : '
         "(tensor<2xf32>) -> tensor<2xf32>", "dictionary"),
        ("%a: tensor<f32>", "%0 = stablehlo.exponential %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0, "
         "ulps = 0, rtol = 0.0, mode = #stablehlo.result_accuracy_mode<DEFAULT>>} : tensor<f32>", "tolerances"),
        ("%a: tensor<2xf32>", "%0 = stablehlo.custom_call @f(%a) {operand_layouts = [dense<0> : tensor<1xindex>], "
         "result_layouts = [dense<0> : tensor<index>]} : (tensor<2xf32>) -> tensor<2xf32>", "not a list"),
        ("%a: tensor<*xf32>", "%0 = chlo.erf %a : tensor<*xf32> -> tensor<2xf32>", "both ranked, or both unranked"),
        ("%a: tensor<2x?xf32>, %b: tensor<2xf32>, %c: tensor<3xf32>",
         '%0:3 = "stablehlo.batch_norm_training"(%a, %b, %c) '
         "{epsilon = 1.0 : f32, feature_index = 1 : i64} : (tensor<2x?xf32>, tensor<2xf32>, tensor<3xf32>) -> "
         "(tensor<2x?xf32>, tensor<?xf32>, tensor<?xf32>)", "have the same shape"),
        ("%a: tensor<?x!quant.uniform<i8:f32, 1.0>, #stablehlo.bounds<2>>, %b: tensor<3x!quant.uniform<i8:f32, 1.0>>",
         "%0 = stablehlo.add %a, %b : (tensor<?x!quant.uniform<i8:f32, 1.0>, #stablehlo.bounds<2>>, "
         "tensor<3x!quant.uniform<i8:f32, 1.0>>) -> tensor<?x!quant.uniform<i8:f32, 1.0>>", "(C1)"),
        ("%a: tensor<i1>", "%0 = arith.index_cast %a : tensor<i1> to tensor<i32>", "one of operand and result"),
        ("%a: tensor<?xf32>, %b: tensor<2xf32>", '%0 = "arith.addf"(%a, %b) : (tensor<?xf32>, tensor<2xf32>) -> '
         "tensor<?xf32>", "one type"),
        ("%a: tensor<2x3xf32>", "%0 = shape.shape_of %a : tensor<2x3xf32> -> tensor<3xindex>", "an extent for each"),
        ("%a: tensor<2xindex>", "%0 = shape.cstr_broadcastable %a : tensor<2xindex>", "at least two shapes"),
        ("%a: tensor<f32>, %i: index", "%0 = tensor.dim %a, %i : tensor<f32>", "the source must have dimensions"),
        ("%a: tensor<2xi32>, %i: index", "%0 = tensor.extract %a[%i, %i] : tensor<2xi32>", "an index for each"),
        ("%i: index", "%0 = tensor.from_elements %i, %i : tensor<3xindex>", "as many as it has"),
        ("%i: i32", "%0 = tensor.from_elements %i : tensor<1xindex>", "the result's element type"),
        ("%a: tensor<?x2xf32>", "%0 = tensor.cast %a : tensor<?x2xf32> to tensor<3x3xf32>", "compatible shapes"),
        ("%a: tensor<?xf32>", "%0 = tensor.cast %a : tensor<?xf32> to tensor<3xf64>", "one element type"),
        ("%a: index, %b: i32", '%0 = "arith.addi"(%a, %b) : (index, i32) -> index', "one type"),
        ("%a: tensor<2xf32>, %b: tensor<3xf32>", '"check.expect_eq"(%a, %b) : (tensor<2xf32>, tensor<3xf32>) -> ()',
         "one type"),
        ("%a: tensor<2xf32>", '"interpreter.run_parallel"(%a) {programs = [[@missing]]} : (tensor<2xf32>) -> ()',
         "no function @missing"),
    ],
)  # fmt: skip
def test_what_breaks_an_op_is_told(arguments: str, op: str, what: str) -> None:
    assert what in _refused(arguments, op)


def test_ragged_dot_groups_the_rhs_when_rows_are_ragged() -> None:
    def program(ragged: str, group: str, sizes: str) -> tuple[str, str]:
        op = "%0 = " + _RAGGED.format(ragged=ragged, group=group, sizes=sizes)
        return _RAGGED_ARGUMENTS.format(sizes=sizes), op

    spmd.parse(_program(*program("[1]", "[0]", "3")))
    spmd.parse(_program(*program("[1]", "[0]", "2x3")))
    assert "one ragged dimension" in _refused(*program("[1, 2]", "[0]", "3"))
    assert "one group dimension" in _refused(*program("[1]", "[]", "3"))
    assert "one group dimension" in _refused(*program("[1]", "[0]", "4"))
    assert "group_sizes has a group" in _refused(*program("[1]", "[0]", "5x3"))
    assert "neither batch nor contract" in _refused(*program("[1]", "[1]", "3"))


def test_scan_takes_slices_and_gives_them_back() -> None:
    def op(dimension: int = 1, slice: str = "tensor<2xi32>", output: str = "2x3") -> tuple[str, str]:
        return "%a: tensor<2x3xi32>, %i: tensor<2xi32>", "%0:2 = " + _SCAN.format(
            dimension=dimension, slice=slice, output=output
        )

    spmd.parse(_program(*op()))
    assert "0 <= dimension" in _refused(*op(dimension=2))
    assert "body takes a slice" in _refused(*op(slice="tensor<3xi32>"))
    assert "laid along dimension" in _refused(*op(output="2x4"))


def test_ops_that_compute_shapes_are_read_without_result_types() -> None:
    text = _program(
        "%a: tensor<?x3xf32>",
        "%c = arith.constant 0 : index\n%d = tensor.dim %a, %c : tensor<?x3xf32>\n"
        "%s = shape.shape_of %a : tensor<?x3xf32> -> tensor<2xindex>\n"
        "%w = shape.cstr_broadcastable %s, %s : tensor<2xindex>, tensor<2xindex>\n"
        "%e = arith.cmpi eq, %d, %c : index\n%x = arith.select %e, %d, %c : index",
    )
    module = spmd.parse(text)
    assert str(spmd.parse(str(module))) == str(module)
