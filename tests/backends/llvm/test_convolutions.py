"""Native convolutions against the NumPy back end; no bit depends on the number of threads. Geometry at large is drawn
in tests/backends/test_convolution.py."""

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import chosen_options
from spmd.types import ELEMENT_TYPES, storage_range
from tests.backends.modules import type_of
from tests.loops import counted_loop

TEXT = """func.func @main(%x: tensor<{lhs}x{element}>, %w: tensor<{rhs}x{element}>) -> tensor<{out}x{element}> {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = {numbers},
    window = {{stride = {stride}, pad = {pad}, lhs_dilate = {spread}, rhs_dilate = {reach}}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<{lhs}x{element}>, tensor<{rhs}x{element}>) -> tensor<{out}x{element}>
  return %r : tensor<{out}x{element}>
}}"""


def places(size: int, kernel: int, stride: int, pad: tuple[int, int], spread: int, reach: int) -> int:
    """How many windows there are along a dimension: the specification's num_windows."""
    whole, window = (size - 1) * spread + 1 + sum(pad), (kernel - 1) * reach + 1
    return (whole - window) // stride + 1


def convolution(
    element: str, image: tuple[int, int], features: tuple[int, int], kernel: tuple[int, int], stride: int = 1,
    pad: tuple[int, int] = (0, 0), spread: int = 1, reach: int = 1, layout: str = "b01f", batch: int = 3,
) -> spmd.Module:  # fmt: skip
    """A convolution of two spatial dimensions, with the same window for both."""
    output_sizes = [
        places(size, window, stride, pad, spread, reach) for size, window in zip(image, kernel, strict=True)
    ]

    def shape(sizes: dict[str, int]) -> str:
        return "x".join(str(sizes[letter]) for letter in layout)

    names = ", ".join(layout)
    return spmd.parse(
        TEXT.format(
            lhs=shape({"b": batch, "0": image[0], "1": image[1], "f": features[0]}),
            rhs="x".join(map(str, (*kernel, *features))),
            out=shape({"b": batch, "0": output_sizes[0], "1": output_sizes[1], "f": features[1]}),
            numbers=f"[{names}]x[0, 1, i, o]->[{names}]",
            stride=[stride] * 2, pad=[list(pad)] * 2, spread=[spread] * 2, reach=[reach] * 2, element=element,
        )
    )  # fmt: skip


CASES = {
    "few features": convolution("f32", (9, 14), (3, 5), (3, 3), pad=(1, 1)),
    "packed kernels": convolution("f32", (7, 7), (12, 70), (3, 3), pad=(1, 1)),
    "more rows in the batch": convolution("f32", (5, 4), (4, 33), (3, 3), batch=25),
    "strides": convolution("f32", (15, 12), (4, 40), (3, 2), stride=2, pad=(1, 0)),
    "dilated windows": convolution("f32", (15, 12), (4, 8), (3, 3), reach=2, pad=(2, 2)),
    "dilated images": convolution("f32", (6, 7), (4, 8), (3, 3), spread=2, pad=(1, 2)),
    "dilated images by three": convolution("f32", (6, 7), (4, 8), (2, 2), spread=3, pad=(2, 0)),
    "dilated images, few places": convolution("f64", (1, 2), (4, 8), (4, 1), spread=3, pad=(4, 1)),
    "dilated everything": convolution("f32", (6, 7), (4, 8), (3, 2), spread=2, reach=3, stride=2, pad=(5, 3)),
    "dilated and cut": convolution("f32", (6, 7), (4, 8), (3, 3), spread=2, pad=(-2, -1)),
    "features first": convolution("f32", (9, 11), (6, 20), (3, 3), pad=(1, 1), layout="bf01"),
    "batch last": convolution("f64", (9, 11), (6, 20), (2, 3), layout="01fb"),
    "single elements": convolution("f32", (5, 6), (7, 9), (1, 1)),
    "single elements, strides": convolution("f32", (5, 6), (7, 9), (1, 1), stride=2),
    "bf16": convolution("bf16", (8, 8), (5, 6), (3, 3), pad=(1, 1)),
    "f16": convolution("f16", (8, 8), (5, 6), (3, 3), pad=(1, 1), layout="bf01"),
    "image by image": convolution("f32", (21, 17), (24, 33), (3, 3), pad=(1, 1), batch=13),
    "image by image, strides": convolution("f32", (21, 26), (24, 70), (3, 3), stride=2, pad=(2, 0), batch=9),
    "image by image, f16": convolution("f16", (21, 17), (24, 8), (3, 3), pad=(1, 1), batch=12),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CASES)
def test_convolutions_agree_with_numpy_whatever_the_threads(name: str) -> None:
    module = CASES[name]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(a.tensor.static_shape).astype(a.tensor.dtype) for a in module.functions[0].arguments)
    lowering = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {}))
    _, plan = lowering.entry(module.functions[0])
    assert len([step for step in plan.steps if step.op.name != "stablehlo.reshape"]) == 1, "one native function"
    (plain,) = spmd.compile(module, backends=("numpy",))(x, w)
    results = [spmd.compile(module, threads=threads)(x, w)[0] for threads in (1, 2, 3)]
    scale = float(np.abs(plain.astype(np.float64)).max())
    tolerance = {2: 2e-2, 4: 1e-5, 8: 1e-13}[plain.dtype.itemsize]
    np.testing.assert_allclose(results[0].astype(np.float64), plain.astype(np.float64), rtol=0, atol=tolerance * scale)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_a_large_convolution_is_cut_for_threads() -> None:
    module = convolution("f32", (24, 24), (16, 48), (3, 3), pad=(1, 1), batch=7)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 24, 24, 16), np.float32)
    w = rng.standard_normal((3, 3, 16, 48), np.float32)
    one, two, five = (spmd.compile(module, threads=threads)(x, w)[0] for threads in (1, 2, 5))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, five)


IMAGES = "tensor<14x600x16xf32>"
CONVOLVED = f"""%t = stablehlo.tanh %v : {IMAGES}
      %y = stablehlo.convolution(%t, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{pad = [[2, 0]]}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({IMAGES}, tensor<3x16x16xf32>) -> {IMAGES}
      %u = stablehlo.add READ : {IMAGES}"""
LOOP = f"""func.func @main(%x: {IMAGES}, %w: tensor<3x16x16xf32>) -> ({IMAGES}, tensor<f32>) {{
  %none = stablehlo.constant dense<0.0> : tensor<f32>
{counted_loop(IMAGES, CONVOLVED, 3)}
  %total = stablehlo.reduce(%r#1 init: %none) applies stablehlo.add across dimensions = [0, 1, 2]
    : ({IMAGES}, tensor<f32>) -> tensor<f32>
  return %r#1, %total : {IMAGES}, tensor<f32>
}}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("read", ["%y, %y", "%v, %y", "%y, %t"])
@pytest.mark.parametrize("donate", [(), (0,)])
def test_what_images_are_made_of_stays_until_the_last_image(read: str, donate: tuple[int, ...]) -> None:
    """Nothing is written over it meanwhile, be it carried around a loop, read again or given away."""
    module = spmd.parse(LOOP.replace("READ", read))
    rng = np.random.default_rng(3)
    x = rng.standard_normal((14, 600, 16), np.float32)
    w = rng.standard_normal((3, 16, 16), np.float32) / 8
    plain = spmd.compile(module, backends=("numpy",))(x, w)
    for threads in (1, 3):
        results = spmd.compile(module, threads=threads, donate=donate)(x.copy(), w)
        for mine, other in zip(results, plain, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3)


INTEGERS = ["i8 i8 i32", "ui8 ui8 i32", "ui8 ui8 ui8", "i8 i8 i8", "i4 i4 i32", "i16 i16 i64"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("elements", INTEGERS)
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_convolutions_of_narrow_integers_are_exact(elements: str, groups: int) -> None:
    """Ends of the types, sums that wrap: to the bit what NumPy gives."""
    left, right, result = elements.split()
    shapes = [(2, 7, 6, 8), (3, 3, 8 // groups, 16), (2, 7, 6, 16)]
    lhs, rhs, out = (type_of((e, shape)) for e, shape in zip((left, right, result), shapes, strict=True))
    text = f"""func.func @main(%x: {lhs}, %w: {rhs}) -> {out} {{
      %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
        : ({lhs}, {rhs}) -> {out}
      return %r : {out}
    }}"""
    module, rng = spmd.parse(text), np.random.default_rng(0)
    arrays = []
    for element, shape in zip((left, right), shapes, strict=False):
        low, high = storage_range(ELEMENT_TYPES[element])
        values = rng.integers(low, high, shape, endpoint=True)
        values[rng.random(shape) < 0.3] = low
        arrays.append(values.astype(ELEMENT_TYPES[element].dtype))
    _, plan = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {})).entry(module.functions[0])
    assert all(step.kernel.is_native for step in plan.steps)
    (want,) = spmd.compile(module, backends=("numpy",))(*arrays)
    for threads in (1, 2):
        np.testing.assert_array_equal(spmd.compile(module, threads=threads)(*arrays)[0], want)
