"""Where in a loop nest nothing has to be asked of indices, and what is left to compute there."""

import pytest

from spmd.analysis.affine import Affine
from spmd.analysis.scalar.expression import Primitive, walk
from spmd.compiler.schedule.interior import Interior, interior_of, specialized_iterations
from spmd.compiler.schedule.nest import Load
from spmd.compiler.schedule.units import nests_of
from tests.compiler.schedule.test_schedule import units_of


def interior(result: str, body: str) -> Interior | None:
    """The inside of the one nest that computes `%r` of `%x`."""
    (unit,) = units_of(f"func.func @main(%x: tensor<20x64xf32>) -> {result} {{\n{body}\n return %r : {result}\n}}")
    (nest,) = nests_of(unit)
    return interior_of(nest, nest.stages[0])


def masked(condition: str) -> str:
    """%x where `condition` of the iotas %i and %j, of i32, holds, and its negative elsewhere."""
    return f"""%i = stablehlo.iota dim = 0 : tensor<20x64xi32>
  %j = stablehlo.iota dim = 1 : tensor<20x64xi32>
  %one = stablehlo.constant dense<1> : tensor<20x64xi32>
  %last = stablehlo.constant dense<63> : tensor<20x64xi32>
  {condition}
  %n = stablehlo.negate %x : tensor<20x64xf32>
  %r = stablehlo.select %c, %x, %n : tensor<20x64xi1>, tensor<20x64xf32>"""


def comparison(left: str, right: str, direction: str, type: str = "SIGNED", element: str = "i32") -> str:
    kind = f"tensor<20x64x{element}>"
    return f"%c = stablehlo.compare {direction}, {left}, {right}, {type} : ({kind}, {kind}) -> tensor<20x64xi1>"


def test_a_padded_operand_has_no_mask_inside() -> None:
    inside = interior(
        "tensor<23x66xf32>",
        """%zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.pad %x, %zero, low = [1, 0], high = [2, 2], interior = [0, 0]
    : (tensor<20x64xf32>, tensor<f32>) -> tensor<23x66xf32>""",
    )
    assert inside is not None
    assert inside.spans == {0: (1, 21), 1: (0, 64)}
    (store,) = inside.stage.stores
    (load,) = inside.stage.loads()
    assert load.mask is None and inside.unguarded == {load}
    assert store.code.primitive is Primitive.PARAMETER


@pytest.mark.parametrize(
    ("condition", "spans", "negated"),
    [
        (comparison("%j", "%one", "LT"), {1: (1, 64)}, True),
        (comparison("%j", "%one", "LE"), {1: (2, 64)}, True),
        (comparison("%j", "%one", "GT"), {1: (2, 64)}, False),
        (comparison("%last", "%j", "GT"), {1: (0, 63)}, False),
        (comparison("%last", "%j", "EQ"), {1: (0, 63)}, True),
        (comparison("%i", "%one", "NE"), {0: (2, 20)}, False),
        (comparison("%i", "%one", "GE", "UNSIGNED", "ui32").replace("%i,", "%u,"), {0: (1, 20)}, False),
    ],
)
def test_a_comparison_of_an_iota_has_one_answer_inside(
    condition: str, spans: dict[int, tuple[int, int]], negated: bool
) -> None:
    body = masked(condition)
    if "ui32" in condition:
        body = body.replace("%one = ", "%u = stablehlo.iota dim = 0 : tensor<20x64xui32>\n  %one = ")
        body = body.replace("dense<1> : tensor<20x64xi32>", "dense<1> : tensor<20x64xui32>")
    inside = interior("tensor<20x64xf32>", body)
    assert inside is not None and inside.spans == spans
    (store,) = inside.stage.stores
    nodes = {node.primitive for node in walk([store.code])}
    assert nodes == ({Primitive.NEG, Primitive.PARAMETER} if negated else {Primitive.PARAMETER})


@pytest.mark.parametrize(
    "body",
    [
        masked(comparison("%i", "%j", "GE")),  # of two loops at once
        masked(
            "%h = stablehlo.constant dense<20> : tensor<20x64xi32>\n"
            "%k = stablehlo.constant dense<42> : tensor<20x64xi32>\n"
            + comparison("%j", "%h", "EQ").replace("%c", "%d")
            + "\n"
            + comparison("%j", "%k", "EQ").replace("%c", "%e")
            + "\n%c = stablehlo.or %d, %e : tensor<20x64xi1>"
        ),  # in three parts, none of which is most of the loop
        masked(
            "%s = stablehlo.constant dense<2147483600> : tensor<20x64xi32>\n"
            "%w = stablehlo.add %j, %s : tensor<20x64xi32>\n" + comparison("%w", "%s", "GE")
        ),  # wraps
    ],
)
def test_where_most_of_a_loop_has_several_answers_there_is_no_inside(body: str) -> None:
    assert interior("tensor<20x64xf32>", body) is None


@pytest.mark.parametrize(
    "update",
    [
        """%o = stablehlo.constant dense<1> : tensor<i32>
  %b = stablehlo.broadcast_in_dim %o, dims = [] : (tensor<i32>) -> tensor<1xi32>
  %r = "stablehlo.scatter"(%x, %b, %y) <{
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [1]>
  }> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<20x64xf32>, tensor<1xi32>, tensor<20x63xf32>) -> tensor<20x64xf32>""",
        """%z = stablehlo.constant dense<-3> : tensor<i8>
  %o = stablehlo.constant dense<7> : tensor<i8>
  %r = stablehlo.dynamic_update_slice %x, %y, %z, %o
    : (tensor<20x64xf32>, tensor<20x63xf32>, tensor<i8>, tensor<i8>) -> tensor<20x64xf32>""",
    ],
)
def test_an_update_at_a_place_that_the_program_names_asks_nothing(update: str) -> None:
    """The second one's place is clamped: to row 0 and column 1."""
    (unit,) = units_of(
        "func.func @main(%x: tensor<20x64xf32>, %y: tensor<20x63xf32>) -> tensor<20x64xf32> {\n"
        f"{update}\n return %r : tensor<20x64xf32>\n}}"
    )
    (nest,) = nests_of(unit)
    (stage,) = nest.stages
    assert all(update.mask is None for update in stage.updates) and all(load.mask is None for load in stage.loads())
    places = [at for update in stage.updates for _, at, _ in update.writes] + [store.address for store in stage.stores]
    assert places == [Affine(1, ((0, 64), (1, 1)))]


def test_each_turn_over_stacked_parts_reads_one_of_them() -> None:
    """Conditions that ask for more than the turn leave a loop as it is."""
    (unit,) = units_of("""func.func @main(%x: tensor<20x64xf32>, %y: tensor<20x64xf32>) -> tensor<20x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<20x64xf32>) -> tensor<20x1x64xf32>
  %b = stablehlo.broadcast_in_dim %y, dims = [0, 2] : (tensor<20x64xf32>) -> tensor<20x2x64xf32>
  %c = stablehlo.concatenate %a, %b, dim = 1
    : (tensor<20x1x64xf32>, tensor<20x2x64xf32>) -> tensor<20x3x64xf32>
  %r = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<20x3x64xf32>, tensor<f32>) -> tensor<20x64xf32>
  return %r : tensor<20x64xf32>
}""")
    (nest,) = nests_of(unit)
    (stage,) = nest.stages
    (last,) = stage.reduced
    turns = specialized_iterations(nest, stage, last)
    assert turns is not None and len(turns) == 3
    read = []
    for turn in turns:
        (code,) = turn.reductions[0].inputs
        assert isinstance(code.attribute, int)
        leaf = turn.leaves[code.attribute]
        assert isinstance(leaf, Load) and leaf.mask is None
        read.append(str(leaf.value)[1:3])
    assert read == ["%x", "%y", "%y"]
    assert specialized_iterations(nest, stage, stage.parallel[0]) is None
