"""Collectives in HLO text: each that HLO has is written by its opcode, and read back as what it was."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from collectives.grid import ProcessGrid
from collectives.operations import Operation
from spmd.builder.hlo import print_hlo
from spmd.builder.hlo.parser import INSTRUCTIONS
from spmd.builder.hlo.printer import CONVERTERS
from spmd.builder.xla_op import OPERATIONS

GROUPS = "replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>"
GLOBAL = f"{GROUPS}, {CHANNEL}, use_global_device_ids"
ADD = (
    "({^bb0(%l: tensor<f32>, %r: tensor<f32>):\n %s = stablehlo.add %l, %r : tensor<f32>\n"
    " stablehlo.return %s : tensor<f32>})"
)
#: The op's regions, attributes and results, of the operands %x: tensor<4x6xf32>, %y: tensor<2x2xf32>.
COLLECTIVES = {
    "all_gather": (f"{{all_gather_dim = 1 : i64, {GLOBAL}}}", "tensor<4x12xf32>", "tensor<2x4xf32>"),
    "all_reduce": (f"{ADD} {{{GROUPS}}}", "tensor<4x6xf32>", "tensor<2x2xf32>"),
    "all_to_all": (
        f"{{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, {GROUPS}}}",
        "tensor<8x3xf32>", "tensor<4x1xf32>",
    ),
    "reduce_scatter": (f"{ADD} {{scatter_dimension = 0 : i64, {GLOBAL}}}", "tensor<2x6xf32>"),
    "collective_permute": (
        f"{{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>, {CHANNEL}}}", "tensor<4x6xf32>"
    ),
    "collective_broadcast": (f"{{{GROUPS}}}", "tensor<4x6xf32>"),
}  # fmt: skip
OPERANDS = ("tensor<4x6xf32>", "tensor<2x2xf32>")


def program(name: str, attributes: str, *results: str) -> spmd.Module:
    types, names = OPERANDS[: len(results)], ("%x", "%y")[: len(results)]
    arguments = ", ".join(f"{name}: {type}" for name, type in zip(names, types, strict=True))
    given, joined = ", ".join(types), ", ".join(results)
    returned = ", ".join(f"%r#{index}" for index in range(len(results)))
    return spmd.parse(
        f"func.func @main({arguments}) -> ({joined}) {{\n"
        f'  %r:{len(results)} = "stablehlo.{name}"({", ".join(names)}) {attributes} : ({given}) -> ({joined})\n'
        f"  return {returned} : {joined}\n}}"
    )


def test_every_operation_that_hlo_has_is_read_written_and_built() -> None:
    of_hlo = {kind.name: kind for kind in Operation.kinds() if kind.hlo_opcode}
    assert of_hlo.keys() == COLLECTIVES.keys()
    for name, kind in of_hlo.items():
        assert kind.hlo_opcode in INSTRUCTIONS
        assert f"stablehlo.{name}" in CONVERTERS
        assert kind.builder_name in OPERATIONS


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_what_is_written_does_the_same(name: str, count: int) -> None:
    attributes, *results = COLLECTIVES[name]
    module = program(name, attributes, *results[:count])
    text = print_hlo(module)
    assert f" {name.replace('_', '-')}(" in text
    by_global_ids = "use_global_device_ids" in attributes or "pairs" in attributes
    grid = ProcessGrid(1, 2) if by_global_ids else ProcessGrid(2, 1)
    arguments = [np.arange(2 * 4 * 6, dtype=np.float32).reshape(2, 4, 6), np.ones((2, 2, 2), np.float32)]
    arguments = arguments[: len(results[:count])]
    expected = spmd.simulate(module, grid)(*arguments)
    got = spmd.simulate(spmd.parse(text), grid)(*arguments)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("axes", "expected"), [("x", "{{0,2},{1,3}}"), ("y", "{{0,1},{2,3}}")])
def test_groups_along_the_axes_of_a_mesh_are_written_as_lists(axes: str, expected: str) -> None:
    mesh = '#stablehlo.mesh<axes = [<name = "x", size = 2>, <name = "y", size = 2>]>'
    groups = f'#stablehlo.replica_group_mesh_axes<mesh = {mesh}, axes = [#stablehlo.axis_ref<name = "{axes}">]>'
    text = print_hlo(program("collective_broadcast", f"{{replica_groups = {groups}}}", "tensor<4x6xf32>"))
    assert f"replica_groups={expected}" in text


def test_what_hlo_text_has_not_is_refused() -> None:
    with pytest.raises(spmd.VerificationError, match=r"stablehlo.collective_reduce.*cannot express this op"):
        print_hlo(program("collective_reduce", f"{ADD} {{{GROUPS}}}", "tensor<4x6xf32>"))


def test_a_root_that_is_told_while_running_is_refused() -> None:
    module = spmd.parse(
        "func.func @main(%x: tensor<2xf32>, %root: tensor<1xi32>) -> tensor<2xf32> {\n"
        f'  %r = "stablehlo.collective_broadcast"(%x, %root) {{{GROUPS}, has_dynamic_root}} : '
        "(tensor<2xf32>, tensor<1xi32>) -> tensor<2xf32>\n  return %r : tensor<2xf32>\n}"
    )
    with pytest.raises(spmd.VerificationError, match="root that is told while running"):
        print_hlo(module)
