"""ComputationBuilder: the builder with the names, argument orders and conventions of its first edition."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation, make
from spmd.builder.constants import blocker, subgraph
from spmd.builder.errors import ArgumentError, BuilderError
from spmd.builder.layout import Layout
from spmd.builder.ops.contraction import dot_general
from spmd.builder.options import ConvolutionDimensionNumbers, DotDimensionNumbers
from spmd.builder.shape import Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp
from spmd.client.client import TRACE, Client, GlobalData
from spmd.ir import Value

ComputationDataHandle = XlaOp
Computation = XlaComputation


class ComputationBuilder(XlaBuilder):
    """An XlaBuilder with a client; errors are deferred to Build unless set_die_immediately_on_error is called.

    Differences from XlaBuilder: Dot on any ranks, Sort of one array, Map without dimensions, and functions that only
    this edition has.
    """

    kConvBatchDimension = 0
    kConvFeatureDimension = 1
    kConvFirstSpatialDimension = 2
    kConvSecondSpatialDimension = 3
    kConvKernelOutputDimension = 0
    kConvKernelInputDimension = 1
    kConvKernelFirstSpatialDimension = 2
    kConvKernelSecondSpatialDimension = 3

    def __init__(self, client: Client, computation_name: str, *, parent: ComputationBuilder | None = None) -> None:
        super().__init__(computation_name, die_immediately_on_error=False)
        self._client = client
        self._parent = parent
        if parent is not None:
            self.die_immediately_on_error = parent.die_immediately_on_error

    def client(self) -> Client:
        return self._client

    def CreateSubBuilder(self, computation_name: str) -> ComputationBuilder:
        """Return a builder for a computation that only this one uses, with the same error handling."""
        return ComputationBuilder(self._client, computation_name, parent=self)

    def BuildAndNoteError(self) -> XlaComputation | None:
        """Build; on an error record it in the parent builder, which reports it, and return None."""
        try:
            return self.Build()
        except BuilderError as error:
            if self._parent is None:
                raise
            self._parent.record(error.diagnostics)
            return None

    # --- shapes ------------------------------------------------------------------------------------------------------

    def CheckShape(self, operand: XlaOp, expected_shape: Shape) -> XlaOp:
        """Return `operand`; BuilderError immediately unless it has `expected_shape`."""
        self._expect("CheckShape", self.GetShape(operand), expected_shape)
        return operand

    def CheckSameShape(self, lhs: XlaOp, rhs: XlaOp) -> None:
        """Raise BuilderError immediately unless both have the same shape."""
        self._expect("CheckSameShape", self.GetShape(rhs), self.GetShape(lhs))

    def _expect(self, name: str, shape: Shape, expected: Shape) -> None:
        if not shape.compatible(expected):
            raise self._error(name, f"expected shape {expected.brief}, got {shape.brief}", self._caller())

    # --- constants ---------------------------------------------------------------------------------------------------

    def ComputeConstant(self, handle: XlaOp, output_layout: Layout | None = None) -> GlobalData:
        """Return the value of `handle`, which must not depend on parameters; as linear memory if a layout is given."""

        def computation(_: XlaBuilder) -> XlaComputation:
            value = self.value(handle, "handle")
            reason = blocker(value)
            if reason is not None:
                raise ArgumentError("handle", f"is not a constant: {reason}")
            return subgraph(f"{self.name()}.constant", self.block, value, self.called)

        return self._client.ComputeConstant(self.perform_now("ComputeConstant", computation), output_layout)

    # --- operations of this edition ----------------------------------------------------------------------------------

    def Dot(self, lhs: XlaOp, rhs: XlaOp) -> XlaOp:
        """Sum products over the last dimension of `lhs` and the last but one of `rhs` (its only one if a vector).

        [p, q, r] dot [s, r, t] is [p, q, s, t]; scalars are multiplied.
        """
        return self.perform("Dot", lambda _: self._dot(lhs, rhs), (), {})

    def _dot(self, lhs: XlaOp, rhs: XlaOp) -> XlaOp:
        left, right = checks.array(self, lhs, "lhs"), checks.array(self, rhs, "rhs")
        checks.same_element_type(right, left, "rhs")
        ranks = left.tensor.rank, right.tensor.rank
        if 0 in ranks:
            if ranks != (0, 0):
                raise ArgumentError(
                    "lhs", f"must be a scalar if and only if rhs is, got ranks {ranks[0]} and {ranks[1]}"
                )
            return self.emit_one("stablehlo.multiply", [left, right])
        return dot_general(self, left, right, DotDimensionNumbers([ranks[0] - 1], [max(ranks[1] - 2, 0)]))

    def Sort(self, operand: XlaOp) -> XlaOp:
        """Return the elements in increasing order along the last dimension."""
        return OPERATIONS["Sort"](self, operand)

    def Map(
        self, operands: Sequence[XlaOp], computation: XlaComputation, static_operands: Sequence[XlaOp] = ()
    ) -> XlaOp:
        """Apply `computation` at every index of `operands`, passing `static_operands` unchanged."""
        return OPERATIONS["Map"](self, operands, computation, None, static_operands)

    def ReduceWindow(
        self, operand: XlaOp, init_value: object, computation: object, *args: object, **kwargs: object
    ) -> XlaOp:
        """Apply ReduceWindow with initial value and computation in either order, as in the document."""
        if isinstance(init_value, XlaComputation):
            init_value, computation = computation, init_value
        return OPERATIONS["ReduceWindow"](self, operand, init_value, computation, *args, **kwargs)

    def SqrtF32(self, operand: XlaOp) -> XlaOp:
        """Return the square root of F32 numbers."""
        return self._float("SqrtF32", "Sqrt", operand)

    def SquareF32(self, operand: XlaOp) -> XlaOp:
        """Return the square of F32 numbers."""
        return self._float("SquareF32", "Square", operand)

    def ReciprocalF32(self, operand: XlaOp) -> XlaOp:
        """Return 1 / x of F32 numbers."""
        return self._float("ReciprocalF32", "Reciprocal", operand)

    def _float(self, name: str, operation: str, operand: XlaOp) -> XlaOp:
        def apply(_: XlaBuilder) -> XlaOp:
            value: Value = checks.array(self, operand, "operand")
            if str(value.tensor.element_type) != "f32":
                raise ArgumentError("operand", f"must be of element type F32, got {Shape.of(value.type).brief}")
            return OPERATIONS[operation](self, operand)

        return self.perform(name, apply, (), {})

    def Trace(self, tag: str, operand: XlaOp) -> None:
        """Log `tag` and the value of `operand` while the computation runs (logger `spmd.trace`)."""

        def trace(_: XlaBuilder) -> None:
            attributes = {"call_target_name": TRACE, "has_side_effect": True, "backend_config": tag}
            make(self.block, "stablehlo.custom_call", [self.value(operand, "operand")], [], attributes)

        self.perform("Trace", trace, (), {})

    # --- convolution dimensions --------------------------------------------------------------------------------------

    @staticmethod
    def CreateDefaultConvDimensionNumbers() -> ConvolutionDimensionNumbers:
        """Return {batch, feature, height, width} and {output feature, input feature, height, width}."""
        return ConvolutionDimensionNumbers.default(2)

    @staticmethod
    def CreateConvDimensionNumbers(
        batch: int,
        feature: int,
        first_spatial: int,
        second_spatial: int,
        kernel_output_feature: int,
        kernel_input_feature: int,
        kernel_first_spatial: int,
        kernel_second_spatial: int,
    ) -> ConvolutionDimensionNumbers:
        """Return dimension numbers; ValueError if those of the input or of the kernel are not distinct."""
        inputs = (batch, feature, first_spatial, second_spatial)
        kernel = (kernel_output_feature, kernel_input_feature, kernel_first_spatial, kernel_second_spatial)
        for name, numbers in (("input", inputs), ("kernel", kernel)):
            if len(set(numbers)) != len(numbers):
                raise ValueError(f"CreateConvDimensionNumbers: {name} dimensions conflict: {list(numbers)}")
        space, window = list(inputs[2:]), list(kernel[2:])
        return ConvolutionDimensionNumbers(batch, feature, space, *kernel[:2], window, batch, feature, list(space))
