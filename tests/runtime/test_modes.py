"""run_parallel's modes: the same results from threads and from one stacked program, and who is told what."""

import logging

import numpy as np
import pytest

import spmd
from spmd.types import ELEMENT_TYPES, ElementType
from tests.backends.collective_programs import PROGRAMS
from tests.backends.modules import main, monoid
from tests.backends.programs import values_of
from tests.collectives.every_reduction import reductions
from tests.compiler.stacking import same_bits

ELEMENTS = [element for element in ELEMENT_TYPES.values() if element.numpy is not None and not element.is_index]


@pytest.mark.parametrize("name", ["cross_replica", "flattened_ids", "collective_permute: a ring, a self send, zeros"])
def test_both_give_the_same(name: str) -> None:
    program = PROGRAMS[name]
    inputs = [program.inputs(rank) for rank in range(program.grid.size)]
    module = spmd.parse(program.text)
    stacked, threads = (spmd.run_parallel(module, program.grid, inputs, mode=mode) for mode in ("stacked", "threads"))
    for left, right in zip(stacked, threads, strict=True):
        assert all(same_bits(*pair) for pair in zip(left, right, strict=True))


@pytest.mark.sampled(30)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_both_give_the_same_bits_of_every_reduction(element: ElementType, reproducible: bool) -> None:
    """Of one element, and of many."""
    sizes = (1, 300)
    generators = [np.random.default_rng(11) for _ in sizes]
    inputs = [[values_of(element, rng, (size,)) for rng, size in zip(generators, sizes, strict=True)] for _ in range(3)]
    if element.is_complex:  # one times the first is another: a part of it is infinite
        for arrays, number in zip(inputs, (complex(np.inf, 1), 1 + 1j, 1 + 0.5j), strict=True):
            for array in arrays:
                array[0] = number
    # Of complex numbers stablehlo has no extrema.
    names = [name for name in reductions(element.dtype) if not (element.is_complex and name in ("minimum", "maximum"))]
    cases = [(name, at, f"tensor<{size}x{element}>") for at, size in enumerate(sizes) for name in names]
    lines = [
        f'%r{number} = "stablehlo.all_reduce"(%{at}) {monoid(name, element.name)} '
        f"{{replica_groups = dense<> : tensor<0x0xi64>}} : ({type}) -> {type}"
        for number, (name, at, type) in enumerate(cases)
    ]
    results = ", ".join(f"%r{number}" for number in range(len(cases)))
    types = ", ".join(type for _, _, type in cases)
    module = spmd.parse(main("\n".join(lines), inputs[0], f"{results} : {types}"))
    stacked, threads = (
        spmd.run_parallel(
            module, spmd.ProcessGrid(3, 1), inputs, mode=mode, reproducible=reproducible, combine_threshold=0
        )
        for mode in ("stacked", "threads")
    )
    for left, right in zip(stacked, threads, strict=True):
        for case, *pair in zip(cases, left, right, strict=True):
            assert same_bits(*pair), case


@pytest.mark.sampled(10)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_both_fill_with_the_same_bits(element: ElementType) -> None:
    """Where nothing arrives, and in the places of a broadcast without a source: f8E8M0FNU has no zero."""
    type, one = f"tensor<2x{element}>", np.ones((2,), element.dtype)
    for op, attribute in (
        ("collective_permute", "source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>"),
        ("collective_permute", "source_target_pairs = dense<[[0, 2], [2, 0]]> : tensor<2x2xi64>"),
        ("collective_broadcast", "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"),
    ):
        text = main(f'%1 = "stablehlo.{op}"(%0) {{{attribute}}} : ({type}) -> {type}', [one], f"%1 : {type}")
        stacked, threads = (
            spmd.run_parallel(spmd.parse(text), spmd.ProcessGrid(3, 1), [[one]] * 3, mode=mode)
            for mode in ("stacked", "threads")
        )
        for left, right in zip(stacked, threads, strict=True):
            assert np.asarray(left[0]).tobytes() == np.asarray(right[0]).tobytes()


SUM = main(
    """%1 = "stablehlo.all_reduce"(%0) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<2xf32>) -> tensor<2xf32>""",
    [np.zeros(2, np.float32)],
    "%1 : tensor<2xf32>",
)


def test_results_belong_to_their_process() -> None:
    x = np.ones(2, np.float32)
    results = spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(20, 1), [[x]] * 20)
    results[0][0][...] = 0
    assert results[1][0].tolist() == [20, 20]


def test_many_processes_are_stacked_unless_they_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    text = """func.func @main(%n: tensor<1xi32>) -> tensor<?xi32> {
      %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %0 : tensor<?xi32>
    }"""
    inputs = [[np.array([rank], np.int32)] for rank in range(17)]
    grid = spmd.ProcessGrid(17, 1)
    with caplog.at_level(logging.INFO, logger="spmd"):
        results = spmd.run_parallel(spmd.parse(text), grid, inputs)
    assert [result.shape for (result,) in results] == [(rank,) for rank in range(17)]
    assert "run as threads" in caplog.text
    assert "dynamic_iota" in caplog.text
    with pytest.raises(spmd.CompileError, match="cannot be stacked"):
        spmd.run_parallel(spmd.parse(text), grid, inputs, mode="stacked")


def test_different_programs_are_stacked_program_by_program() -> None:
    modules = [[spmd.parse(SUM)], [spmd.parse(SUM)]]
    inputs = [[np.ones(2, np.float32)]] * 2
    for mode in ("threads", "stacked"):
        assert spmd.run_parallel(modules, inputs=inputs, mode=mode)[0][0].tolist() == [2, 2]


TUPLE = "tuple<tensor<2xf32>, tuple<tensor<2xf32>, !stablehlo.token>>"
OF_TUPLES = f"""func.func @main(%x: {TUPLE}) -> (tensor<2xf32>, {TUPLE}) {{
  %0 = stablehlo.get_tuple_element %x[0] : ({TUPLE}) -> tensor<2xf32>
  %1 = stablehlo.get_tuple_element %x[1] : ({TUPLE}) -> tuple<tensor<2xf32>, !stablehlo.token>
  %2 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<2xf32>, !stablehlo.token>) -> tensor<2xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<2xf32>
  return %3, %x : tensor<2xf32>, {TUPLE}
}}"""


def test_arguments_and_results_may_be_tuples() -> None:
    """Parts that are one object on all processes, too; one process of two has other parts than the other."""
    module, grid = spmd.parse(OF_TUPLES), spmd.ProcessGrid(2, 1)
    same = np.array([1, 2], np.float32)
    inputs = [[(same + rank * 4, (same, None))] for rank in range(2)]
    for programs in (module, [[module], [module]]):
        for mode in ("threads", "stacked"):
            results = spmd.run_parallel(programs, None if programs is not module else grid, inputs, mode=mode)
            for rank, (difference, (first, (second, token))) in enumerate(results):
                assert difference.tolist() == [4 * rank] * 2 and token is None
                assert first.tolist() == [1 + 4 * rank, 2 + 4 * rank] and second.tolist() == [1, 2]
    simulation = spmd.simulate(module, grid)
    (part, _), whole = simulation(*simulation.shard((same, (same, None)))), (same, (same, None))
    assert part.tolist() == [[0, 0], [0, 0]]
    assert simulation.unshard(*simulation(*simulation.shard(whole)))[1][1][0].tolist() == [1, 2]


def test_a_tuple_of_other_parts_is_refused() -> None:
    module, grid, one = spmd.parse(OF_TUPLES), spmd.ProcessGrid(2, 1), np.ones(2, np.float32)
    wrong = [(one, one, None), one, (one, (np.ones(2), None)), ((one, None), one)]
    for given in wrong:
        for mode in ("threads", "stacked"):
            with pytest.raises(spmd.ExecutionError, match=r"argument 0.*: t.*> is needed, got"):
                spmd.run_parallel(module, grid, [[given]] * 2, mode=mode)
    with pytest.raises(spmd.ExecutionError, match="part 0 of argument 0: tensor<2xf32> behind a leading axis of 2"):
        spmd.simulate(module, grid)((one, (one, None)))


def test_a_process_with_wrong_arguments_is_named() -> None:
    inputs = [[np.ones(2, np.float32)] for _ in range(20)]
    inputs[7] = [np.ones(3, np.float32)]
    with pytest.raises(spmd.ExecutionError, match=r"tensor<2xf32> is needed") as caught:
        spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(20, 1), inputs)
    assert caught.value.__notes__ == ["in process 7"]
    inputs[7] = []
    with pytest.raises(spmd.ExecutionError, match="takes 1 arguments, got 0 for process 7"):
        spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(20, 1), inputs)


def test_an_unknown_mode() -> None:
    with pytest.raises(spmd.UsageError, match='mode must be "auto", "stacked" or "threads"'):
        spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(2, 1), mode="fast")


def test_a_grid_too_large_for_threads_tells_why_it_is_not_stacked() -> None:
    some = SUM.replace("dense<> : tensor<0x0xi64>", "dense<[[0, 1]]> : tensor<1x2xi64>")
    grid = spmd.ProcessGrid(20000, 1)
    with pytest.raises(spmd.SpmdError, match=r"process 2 .* is in none of the process groups"):
        spmd.run_parallel(spmd.parse(some), grid, [[np.ones(2, np.float32)]] * grid.size)
