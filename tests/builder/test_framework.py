"""The TensorFlow compiler framework document: its programs and examples, with ComputationBuilder and Client.

Two of its out-of-order numbers contradict its own text and the later editions; see the tests of Reshape and Reduce.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest

from examples.builder.axpy import compute_axpy_constants, compute_axpy_parameters
from spmd.builder import (
    F32,
    BuilderError,
    Client,
    ClientLibrary,
    ComputationBuilder,
    Layout,
    Literal,
    MakePadding,
    Padding,
    PaddingConfig,
    PaddingValue,
    Shape,
    ShapeUtil,
    XlaBuilder,
    XlaComputation,
    XlaOp,
)
from spmd.errors import ExecutionError, UsageError
from tests.builder.support import Array, equal, f32, run, s32
from tests.builder.test_semantics_arrays import CUBE, FLAT, ROWS_OF_3

CLIENT = ClientLibrary.ClientOrDie()


def compute(builder: ComputationBuilder, *arrays: Array) -> object:
    return run(builder.Build(), *arrays)


def new(name: str = "test") -> ComputationBuilder:
    return ComputationBuilder(CLIENT, name)


def binary(name: str) -> XlaComputation:
    builder = new(name.lower())
    y = builder.Parameter(0, ShapeUtil.MakeShape(F32, []), "y")
    x = builder.Parameter(1, ShapeUtil.MakeShape(F32, []), "x")
    getattr(builder, name)(y, x)
    return builder.Build()


# --- getting started -------------------------------------------------------------------------------------------------


def test_a_builder_may_be_given_the_client_first() -> None:
    """As the example of ReduceWindow has it: `XlaBuilder builder(client_, "max")`."""
    builder = XlaBuilder(CLIENT, "max")
    y = builder.Parameter(0, ShapeUtil.MakeShape(F32, []), "y")
    builder.Max(y, builder.Parameter(1, ShapeUtil.MakeShape(F32, []), "x"))
    assert (builder.name(), builder.Build().name()) == ("max", "max")
    for arguments in [(CLIENT,), ("max", CLIENT), ("max", "min"), (3,)]:
        with pytest.raises(UsageError, match="the name of its computation, or a client and that name"):
            XlaBuilder(*arguments)


def test_the_client_has_the_documents_names() -> None:
    assert ClientLibrary.ClientLibraryOrDie() is ClientLibrary.LocalClientOrDie() is CLIENT


def test_axpy_with_parameters() -> None:
    result = compute_axpy_parameters(Literal(2.0), Literal([1.0, 2.0, 3.0]), Literal([10.0, 20.0, 30.0]))
    assert result == Literal([12.0, 24.0, 36.0])
    assert str(result) == "f32[3] {12, 24, 36}"


def test_axpy_with_constants() -> None:
    assert compute_axpy_constants(2.0, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == Literal([12.0, 24.0, 36.0])


def test_a_computation_is_compiled_once_and_runs_many_times() -> None:
    builder = new()
    builder.Neg(builder.Parameter(0, Shape("f32[2]"), "x"))
    computation = builder.Build()
    loaded = CLIENT.Compile(computation)
    assert CLIENT.Compile(computation) is loaded
    for values in ([1.0, 2.0], [3.0, 4.0]):
        data = CLIENT.TransferInProcess(f32(values))
        equal(CLIENT.Execute(loaded, [data]).value(), [-v for v in values])
        equal(CLIENT.Execute(computation, [data]).value(), [-v for v in values])


def test_transfer_in_process_copies_nothing() -> None:
    array = f32([1, 2])
    data = CLIENT.TransferInProcess(array)
    assert CLIENT.TransferInProcess(data) is array
    equal(np.asarray(data), array)
    assert not np.shares_memory(CLIENT.TransferToServer(Literal(array)).value(), array)


def test_arguments_that_do_not_fit_are_refused() -> None:
    builder = new()
    builder.Parameter(0, Shape("f32[2]"), "x")
    computation = builder.Build()
    with pytest.raises(ExecutionError, match="argument 0 must have shape f32"):
        CLIENT.Execute(computation, [CLIENT.TransferToServer(f32([1, 2, 3]))])
    with pytest.raises(ExecutionError, match="1 arguments are needed, got 0"):
        CLIENT.Execute(computation)


# --- shapes and layout -----------------------------------------------------------------------------------------------

LETTERS = np.array([list("abc"), list("def")])


def test_minor_to_major() -> None:
    assert "".join(Layout([0, 1]).to_memory(LETTERS)) == "adbecf"
    assert "".join(Layout([1, 0]).to_memory(LETTERS)) == "abcdef"


def test_padded_dimensions() -> None:
    """a d 0 b e 0 c f 0 0 0 0 0 0 0, which is the layout of a 3x5 array."""
    a, b, c, d, e, f = range(1, 7)
    layout = Layout([0, 1], [3, 5], PaddingValue.ZERO_PAD)
    literal = Literal(f32([[a, b, c], [d, e, f]]), layout=layout)
    equal(literal.memory(), [a, d, 0, b, e, 0, c, f, 0, 0, 0, 0, 0, 0, 0])
    padded = f32([[a, b, c, 0, 0], [d, e, f, 0, 0], [0, 0, 0, 0, 0]])
    equal(Layout([0, 1]).to_memory(padded), literal.memory())
    assert Literal.from_memory(literal.memory(), literal.shape()) == literal


def test_layouts_at_the_border_change_no_value() -> None:
    shape = Shape.array_shape(F32, [2, 3], Layout([0, 1], [3, 5], -1.0))
    builder = new()
    builder.Add(builder.Parameter(0, shape, "x"), builder.ConstantR0(1.0))
    memory = f32([1, 4, -1, 2, 5, -1, 3, 6, -1, -1, -1, -1, -1, -1, -1])
    data = CLIENT.TransferInProcess(memory, shape)
    result = CLIENT.ExecuteAndTransfer(builder.Build(), [data], shape)
    equal(result.value(), [[2, 3, 4], [5, 6, 7]])
    equal(result.memory(), [2, 5, -1, 3, 6, -1, 4, 7, -1, -1, -1, -1, -1, -1, -1])


def test_rank_and_true_rank() -> None:
    shape = ShapeUtil.MakeShape(F32, [4, 1, 3])
    assert (shape.rank(), shape.true_rank(), shape.dimensions()) == (3, 2, (4, 1, 3))


# --- operations that this edition has otherwise ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ((), (), ()),
        ((4,), (4,), ()),
        ((3, 4), (4,), (3,)),
        ((3, 4), (4, 5), (3, 5)),
        ((2, 3, 4), (5, 4, 6), (2, 3, 5, 6)),
    ],
)
def test_dot_contracts_as_numpy_does(lhs: tuple[int, ...], rhs: tuple[int, ...], result: tuple[int, ...]) -> None:
    one = np.arange(np.prod(lhs), dtype=np.float32).reshape(lhs)
    two = np.arange(np.prod(rhs), dtype=np.float32).reshape(rhs)
    builder = new()
    builder.Dot(*(builder.Parameter(n, Shape.array_shape(F32, a.shape), f"p{n}") for n, a in enumerate((one, two))))
    got = compute(builder, one, two)
    assert np.shape(got) == result
    equal(got, np.dot(one, two))


def reshaped(order: list[int], sizes: list[int]) -> object:
    builder = new()
    builder.Reshape(builder.Parameter(0, Shape("f32[4,2,3]"), "v"), order, sizes)
    return compute(builder, CUBE)


def test_reshape_in_order() -> None:
    equal(reshaped([0, 1, 2], [24]), FLAT)
    equal(reshaped([0, 1, 2], [8, 3]), ROWS_OF_3)


def test_reshape_out_of_order() -> None:
    """The document prints the values of the order {1,0,2} beside the call with {1,2,0}.

    Dimensions are listed from the slowest varying to the fastest, so 10, 11, 12, 20, ... is dimension 1, then 0,
    then 2. The later edition prints the values that {1,2,0} gives (test_semantics_arrays.py).
    """
    printed = [10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42, 15, 16, 17, 25, 26, 27, 35, 36, 37, 45, 46, 47]
    equal(reshaped([1, 0, 2], [24]), printed)
    equal(reshaped([1, 0, 2], [8, 3]), np.reshape(printed, (8, 3)).tolist())
    pairs = [[[10, 11], [12, 20], [21, 22], [30, 31], [32, 40], [41, 42]],
             [[15, 16], [17, 25], [26, 27], [35, 36], [37, 45], [46, 47]]]  # fmt: skip
    equal(reshaped([1, 0, 2], [2, 6, 2]), pairs)
    equal(reshaped([1, 2, 0], [24]), CUBE.transpose(1, 2, 0).reshape(24))


def test_reduce_of_a_cube() -> None:
    """1 to 6 in each of 4 layers. The document prints 4 8 12 twice for dimension 0: the second row is 16 20 24, as
    later editions have it, and as its own sums 20 28 36 and 84 demand."""
    cube = np.broadcast_to(f32([[1, 2, 3], [4, 5, 6]]), (4, 2, 3)).copy()
    add = binary("Add")
    expected = {(0,): [[4, 8, 12], [16, 20, 24]], (2,): [[6, 15]] * 4, (0, 1): [20, 28, 36], (0, 1, 2): 84}
    for dimensions, values in expected.items():
        builder = new()
        x = builder.Parameter(0, Shape("f32[4,2,3]"), "x")
        builder.Reduce(x, builder.ConstantR0(0.0), add, dimensions)
        equal(compute(builder, cube), values)


@pytest.mark.parametrize("computation_first", [True, False])
def test_reduce_window(computation_first: bool) -> None:
    """The document's program gives the computation first, its interface the initial value: both are taken."""
    maximum = binary("Max")
    builder = new("reduce_window_2x3")
    parameter = builder.Parameter(0, ShapeUtil.MakeShape(F32, [4, 6]), "input")
    start = builder.ConstantR0(np.finfo(np.float32).tiny)
    pair = (maximum, start) if computation_first else (start, maximum)
    builder.ReduceWindow(parameter, *pair, [2, 3], [2, 3], Padding.kValid)
    array = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    equal(compute(builder, array), [[9, 12], [21, 24]])


def test_pad() -> None:
    """Low, high and interior padding of both dimensions, and the pad that changes nothing."""
    x = f32([[1, 2], [3, 4]])

    def padded(config: PaddingConfig) -> object:
        builder = new()
        builder.Pad(builder.Parameter(0, Shape("f32[2,2]"), "x"), builder.ConstantR0(9.0), config)
        return compute(builder, x)

    config = PaddingConfig()
    config.add_dimensions(low=1)
    config.add_dimensions(high=2, interior=1)
    assert config == PaddingConfig([(1, 0, 0), (0, 2, 1)])
    equal(padded(config), [[9, 9, 9, 9, 9], [1, 9, 2, 9, 9], [3, 9, 4, 9, 9]])
    equal(padded(PaddingConfig([(0, 0, 0), (0, 0, 0)])), x)
    equal(padded(PaddingConfig([(-1, 0, 0), (0, -1, 1)])), [[3, 9]])


def test_trans() -> None:
    builder = new()
    builder.Trans(builder.Parameter(0, Shape("f32[2,3]"), "x"))
    equal(compute(builder, f32([[1, 2, 3], [4, 5, 6]])), [[1, 4], [2, 5], [3, 6]])
    builder = new()
    builder.Reshape(builder.Parameter(0, Shape("f32[2,3]"), "x"), [1, 0], [3, 2])
    equal(compute(builder, f32([[1, 2, 3], [4, 5, 6]])), [[1, 4], [2, 5], [3, 6]])


def test_slice_of_the_interface() -> None:
    builder = new()
    x = builder.Parameter(0, Shape("s32[3,4]"), "x")
    builder.Slice(x, [1, 1], [2, 3])
    equal(compute(builder, s32(np.arange(12).reshape(3, 4))), [[5, 6]])


def test_collapse_of_the_interface() -> None:
    builder = new()
    x = builder.Parameter(0, Shape("f32[256,2,2,32]"), "x")
    assert builder.GetShape(builder.Collapse(x, [0, 1, 2])) == Shape("f32[1024,32]")


def test_sort_is_increasing() -> None:
    builder = new()
    builder.Sort(builder.Parameter(0, Shape("f32[4]"), "x"))
    equal(compute(builder, f32([3, 1, 2, -1])), [-1, 1, 2, 3])


def test_map_with_static_operands() -> None:
    inner = new("f")
    values = [inner.Parameter(n, Shape("f32[]"), f"p{n}") for n in range(3)]
    inner.Add(inner.Mul(values[0], values[1]), values[2])
    builder = new()
    x, y = (builder.Parameter(n, Shape("f32[2]"), f"x{n}") for n in range(2))
    builder.Map([x, y], inner.Build(), [builder.ConstantR0(100.0)])
    result = CLIENT.ExecuteAndTransfer(builder.Build(), [CLIENT.TransferToServer(f32(v)) for v in ([1, 2], [3, 4])])
    equal(result.value(), [103, 108])


def test_functions_of_f32() -> None:
    builder = new()
    x = builder.Parameter(0, Shape("f32[2]"), "x")
    builder.Tuple([builder.SqrtF32(x), builder.SquareF32(x), builder.ReciprocalF32(x), builder.Pow(x, x)])
    equal(compute(builder, f32([1, 4])), [f32([1, 2]), f32([1, 16]), f32([1, 0.25]), f32([1, 256])])
    wrong = new()
    wrong.SqrtF32(wrong.ConstantR0(1, "s32"))
    with pytest.raises(BuilderError, match="SqrtF32: argument operand: must be of element type F32"):
        wrong.Build()


def test_constants_of_every_rank() -> None:
    builder = new()
    values = [
        builder.ConstantR0(True),
        builder.ConstantR1([1, 2]),
        builder.ConstantR1(3, 7.0),
        builder.ConstantR2([[1.0, 2.0], [3.0, 4.0]]),
        builder.ConstantR2FromArray2D(np.zeros((2, 3), np.uint32)),
        builder.ConstantR3FromArray3D(np.zeros((1, 2, 3), np.int64)),
        builder.ConstantR4FromArray4D(np.zeros((1, 2, 3, 4), np.float64)),
        builder.ConstantLiteral(Literal(np.uint64(2**63))),
    ]
    texts = ["pred[]", "s32[2]", "f32[3]", "f32[2,2]", "u32[2,3]", "s64[1,2,3]", "f64[1,2,3,4]", "u64[]"]
    assert [builder.GetShape(value).brief for value in values] == texts
    equal(compute(builder), np.uint64(2**63))


def test_convolution_dimension_numbers() -> None:
    default = ComputationBuilder.CreateDefaultConvDimensionNumbers()
    assert default == ComputationBuilder.CreateConvDimensionNumbers(0, 1, 2, 3, 0, 1, 2, 3)
    with pytest.raises(ValueError, match="kernel dimensions conflict"):
        ComputationBuilder.CreateConvDimensionNumbers(0, 1, 2, 3, 0, 0, 2, 3)
    assert MakePadding([5, 5], [3, 2], [1, 2], Padding.SAME) == [(1, 1), (0, 1)]


# --- the builder -----------------------------------------------------------------------------------------------------


def test_check_shape() -> None:
    builder = new()
    x, y = builder.ConstantR1([1.0]), builder.ConstantR0(1.0)
    assert builder.CheckShape(x, Shape("f32[1]")) is x
    builder.CheckSameShape(x, builder.Neg(x))
    with pytest.raises(BuilderError, match=r"CheckShape: expected shape f32\[2\], got f32\[1\]"):
        builder.CheckShape(x, Shape("f32[2]"))
    with pytest.raises(BuilderError, match=r"CheckSameShape: expected shape f32\[1\], got f32\[\]"):
        builder.CheckSameShape(x, y)


def test_errors_are_kept_until_build() -> None:
    builder = new()
    x = builder.ConstantR1([1.0, 2.0])
    failed = builder.Add(x, builder.ConstantR1([1.0, 2.0, 3.0]))
    assert not failed.is_valid
    assert not builder.Mul(failed, failed).is_valid
    builder.Neg(x)
    with pytest.raises(BuilderError, match=r"test_framework\.py:\d+: Add: argument rhs") as caught:
        builder.Build()
    assert len(caught.value.diagnostics) == 1
    builder = new()
    builder.set_die_immediately_on_error(True)
    with pytest.raises(BuilderError, match="Add"):
        builder.Add(builder.ConstantR1([1.0]), builder.ConstantR1([1]))


def test_sub_builders_note_their_errors_in_the_parent() -> None:
    parent = new("parent")
    child = parent.CreateSubBuilder("child")
    child.Trans(child.Parameter(0, Shape("f32[]"), "x"))
    assert child.BuildAndNoteError() is None
    parent.ConstantR0(1.0)
    with pytest.raises(BuilderError, match="Trans: argument operand"):
        parent.Build()
    parent.set_die_immediately_on_error(True)
    assert parent.CreateSubBuilder("other").die_immediately_on_error


def test_set_return_value() -> None:
    builder = new()
    x = builder.Parameter(0, Shape("f32[]"), "x")
    builder.SetReturnValue(builder.Neg(x))
    builder.Exp(x)
    equal(compute(builder, f32(3)), -3)


def test_compute_constant() -> None:
    builder = new()
    x = builder.Parameter(0, Shape("f32[2,3]"), "x")
    known = builder.Add(builder.ConstantR2([[1, 2, 3], [4, 5, 6]]), builder.ConstantR0(10))
    assert builder.IsConstant(known)
    equal(builder.ComputeConstant(known).value(), [[11, 12, 13], [14, 15, 16]])
    equal(builder.ComputeConstant(known, Layout([0, 1])).value(), [11, 14, 12, 15, 13, 16])
    unknown = builder.Add(x, x)
    with pytest.raises(BuilderError, match=r"ComputeConstant: argument handle: .*depends on parameter 0 \(x\)"):
        builder.ComputeConstant(unknown)


def test_trace_logs_the_value(caplog: pytest.LogCaptureFixture) -> None:
    builder = new()
    x = builder.Parameter(0, Shape("f32[2]"), "x")
    builder.Trace("seen", x)
    with caplog.at_level(logging.INFO, logger="spmd.trace"):
        result = CLIENT.ExecuteAndTransfer(builder.Build(), [CLIENT.TransferToServer(f32([1, 2]))])
    equal(result.value(), [1, 2])
    assert "seen: [1. 2.]" in caplog.text


def test_infeed_and_outfeed_of_the_client() -> None:
    client = Client()
    builder = ComputationBuilder(client, "streams")
    value: XlaOp = builder.Infeed(Shape("f32[2]"))
    builder.Outfeed(builder.Mul(value, builder.ConstantR0(10.0)))
    computation = builder.Build(value)
    client.TransferToInfeed(Literal([1.0, 2.0]))
    assert client.ExecuteAndTransfer(computation) == Literal([1.0, 2.0])
    assert client.TransferFromOutfeed() == Literal([10.0, 20.0])
    with pytest.raises(ExecutionError, match="nothing was transferred to the infeed"):
        client.Execute(computation)
