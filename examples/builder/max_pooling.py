"""Max pooling and its gradient: ReduceWindow forward, SelectAndScatter backward.

python examples/builder/max_pooling.py
"""

import numpy as np

import spmd
from spmd.builder import F32, LiteralUtil, Padding, Shape, XlaBuilder, XlaComputation, XlaOp, ops

WINDOW, STRIDES = (2, 3), (2, 2)


def scalar_function(name: str, operation: str) -> XlaComputation:
    """A computation of two f32 scalars."""
    builder = XlaBuilder(name)
    x, y = (builder.Parameter(number, Shape.array_shape(F32), name) for number, name in enumerate("xy"))
    getattr(builder, operation)(x, y)
    return builder.Build()


def max_pool(images: XlaOp) -> XlaOp:
    """f32[height, width] to the largest value of each window that fits."""
    lowest = images.builder.Constant(LiteralUtil.MinValue(F32))
    return ops.ReduceWindow(images, lowest, scalar_function("max", "Max"), WINDOW, STRIDES, Padding.VALID)


def max_pool_gradient(images: XlaOp, gradients: XlaOp) -> XlaOp:
    """The gradient of each window goes to the element that was its maximum; where windows overlap, they add up."""
    pick, add = scalar_function("ge", "Ge"), scalar_function("add", "Add")
    zero = images.builder.ConstantR0(0.0)
    return ops.SelectAndScatter(images, pick, WINDOW, STRIDES, Padding.VALID, gradients, zero, add)


def pooling_and_gradient(height: int, width: int) -> XlaComputation:
    """(images, gradients of the pooled images) -> (pooled images, gradients of the images)."""
    builder = XlaBuilder("max_pooling")
    images = builder.Parameter(0, Shape.array_shape(F32, [height, width]), "images")
    pooled = max_pool(images)
    gradients = builder.Parameter(1, pooled.shape, "gradients")
    return builder.Build(ops.Tuple([pooled, max_pool_gradient(images, gradients)]))


def main() -> None:
    images = np.array([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]], np.float32)
    gradients = np.array([[2, 6], [3, 1]], np.float32)
    computation = pooling_and_gradient(*images.shape)
    pooled, spread = spmd.compile(computation.to_stablehlo())(images, gradients)
    print("images", images, "pooled", pooled, "gradient: the 9 is the maximum of two windows", spread, sep="\n")


if __name__ == "__main__":
    main()
