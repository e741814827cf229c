"""Convolutions by products that are scattered: each element of the lhs times the whole kernel, added up in its place.

Where the lhs is dilated (the gradient of a strided convolution) most of what a window sees is zeros, and where there
are few output features copying windows costs more than multiplying. One matrix product of the lhs with all places of
the kernel does neither: its results are added to the slices of the result they belong to, one place after another.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from spmd.backends.numpy.convolution_geometry import PATCHES, Geometry, kernel_matrix, to_result
from spmd.support.arrays import Array

#: Output features that make a run of memory worth a call.
_RUN = 16


def scatters_less(geometry: Geometry) -> bool:
    """Whether scattering products moves less than gathering windows. Windows must go over every place (stride 1)."""
    numbers = geometry.numbers
    if geometry.groups > 1 or any(stride != 1 for stride in geometry.strides) or prod(geometry.kernel_sizes) == 1:
        return False
    inputs = prod(geometry.lhs_shape[axis] for axis in numbers.input_spatial_dimensions)
    outputs = prod(geometry.result_shape[axis] for axis in numbers.output_spatial_dimensions)
    features = geometry.lhs_shape[numbers.input_feature_dimension]
    return 2 * inputs * geometry.result_shape[numbers.output_feature_dimension] < outputs * features


def scattered_products(geometry: Geometry, multiply: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """Function of (lhs, rhs); `multiply` is the matrix product.

    Products lie with the features last where these make long runs of memory, else with the images last.
    """
    numbers = geometry.numbers
    batch = geometry.lhs_shape[numbers.input_batch_dimension]
    features = geometry.lhs_shape[numbers.input_feature_dimension]
    outputs = geometry.result_shape[numbers.output_feature_dimension]
    sizes = [geometry.lhs_shape[axis] for axis in numbers.input_spatial_dimensions]
    extents = [geometry.result_shape[axis] for axis in numbers.output_spatial_dimensions]
    spatial = [("o", d) for d in geometry.spatial]
    within = [("k", d) for d in geometry.spatial]
    count, pixels = prod(geometry.kernel_sizes), prod(sizes)
    routes = [_route(geometry, place) for place in np.ndindex(*geometry.kernel_sizes)]
    step = min(batch, max(1, PATCHES // max(1, pixels * count * outputs)))
    last = outputs >= _RUN
    matrix = kernel_matrix(geometry, ["g", "f", *within, "n"] if last else ["g", *within, "n", "f"])
    arrange = to_result(geometry, ["b", *spatial, "g", "n"] if last else ["g", "n", "b", *spatial])
    to_images = [numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension]

    def features_last(lhs: Array, rhs: Array) -> Array:
        images, weights = lhs.transpose(to_images), matrix(rhs).reshape(features, count * outputs)
        result = np.zeros((batch, *extents, outputs), np.result_type(lhs, rhs))
        for start in range(0, batch, step):
            part = images[start : start + step]
            products = multiply(part.reshape(-1, features), weights).reshape(*part.shape[:-1], count, outputs)
            for number, (source, target) in enumerate(routes):
                place = result[start : start + step][(slice(None), *target)]
                np.add(place, products[..., number, :][(slice(None), *source)], out=place)
        return arrange(result.reshape(batch, *extents, 1, outputs))

    def images_last(lhs: Array, rhs: Array) -> Array:
        images, weights = lhs.transpose(to_images), matrix(rhs).reshape(count * outputs, features)
        result = np.zeros((outputs, batch, *extents), np.result_type(lhs, rhs))
        for start in range(0, batch, step):
            part = images[start : start + step]
            products = multiply(weights, part.reshape(-1, features).T).reshape(count, outputs, *part.shape[:-1])
            for number, (source, target) in enumerate(routes):
                place = result[:, start : start + step][(slice(None), slice(None), *target)]
                np.add(place, products[number][(slice(None), slice(None), *source)], out=place)
        return arrange(result.reshape(1, outputs, batch, *extents))

    return features_last if last else images_last


def _route(geometry: Geometry, place: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Which elements of the lhs meet `place` of the kernel in some window, and in which elements of the result."""
    numbers = geometry.numbers
    sources, targets = [], []
    for d in geometry.spatial:
        size = geometry.lhs_shape[numbers.input_spatial_dimensions[d]]
        extent = geometry.result_shape[numbers.output_spatial_dimensions[d]]
        step = geometry.lhs_dilation[d]
        # Element i of the lhs stands at `offset` + i * step of the result.
        offset = geometry.padding[d][0] - place[d] * geometry.rhs_dilation[d]
        first = max(0, -(offset // step))
        last = min(size - 1, (extent - 1 - offset) // step)
        if last < first:
            sources.append(slice(0, 0))
            targets.append(slice(0, 0))
            continue
        sources.append(slice(first, last + 1))
        targets.append(slice(offset + first * step, offset + last * step + 1, step))
    return tuple(sources), tuple(targets)
