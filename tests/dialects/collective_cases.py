"""Cases of collectives and of communication."""

from __future__ import annotations

from tests.dialects.cases import Change, OpCase, Unbreakable

_ADD = (
    "({^bb0(%x: tensor<f32>, %y: tensor<f32>):\n %s = stablehlo.add %x, %y : tensor<f32>\n "
    "stablehlo.return %s : tensor<f32>})"
)
_THREE = ("(%x: tensor<f32>, %y: tensor<f32>)", "(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>)")
_GROUPS = "replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>"
_GLOBAL = f"{_GROUPS}, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids"
_TWICE = ("[0, 2], [1, 3]", "[0, 2], [1, 2]")
_OUTSIDE = ("[0, 2], [1, 3]", "[0, 2], [1, 4]")
_NO_CHANNEL = ("handle = 1", "handle = 0")
_GRID = Unbreakable("the grid is not known before a program is compiled for one")
_VALUE = Unbreakable("the root is a run-time value")


def _pairs(prefix: str) -> dict[str, Change]:
    """What breaks `source_target_pairs = dense<[[0, 1], [1, 0]]>`."""
    return {
        f"{prefix}1": ("dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>", "dense<[[0], [1]]> : tensor<2x1xi64>"),
        f"{prefix}2": ("[[0, 1], [1, 0]]", "[[0, 1], [0, 2]]"),
        f"{prefix}3": ("[[0, 1], [1, 0]]", "[[0, 1], [1, 1]]"),
        f"{prefix}4": ("[[0, 1], [1, 0]]", "[[0, 1], [-1, 0]]"),
    }


def _groups(first: int) -> dict[str, Change | Unbreakable]:
    """What breaks `_GLOBAL`, constraint by constraint from C`first` on."""
    return {f"C{label}": fault for label, fault in enumerate((_TWICE, _GRID, _OUTSIDE, _NO_CHANNEL), first)}


_PAIRS = "source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>"

CASES = [
    OpCase(
        "all_gather",
        f"{{all_gather_dim = 1 : i64, {_GLOBAL}}} : (tensor<2x3xf32>) -> tensor<2x6xf32>",
        {
            "C1": ("all_gather_dim = 1", "all_gather_dim = 2"),
            **_groups(2),
            "C6": ("-> tensor<2x6xf32>", "-> tensor<3x6xf32>"),
        },
    ),
    OpCase(
        "all_reduce",
        f"{_ADD} {{{_GLOBAL}}} : (tensor<2xf32>) -> tensor<2xf32>",
        {
            **_groups(1),
            "C5": _THREE,
            "C6": ("-> tensor<2xf32>", "-> tensor<3xf32>"),
            "C7": ("-> tensor<2xf32>", "-> tensor<2xf64>"),
        },
    ),
    OpCase(
        "all_to_all",
        f"{{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, {_GROUPS}}} : "
        "(tensor<2x4xf32>) -> tensor<4x2xf32>",
        {
            "C1": ("split_dimension = 1", "split_dimension = 2"),
            "C2": ("(tensor<2x4xf32>)", "(tensor<2x3xf32>)"),
            "C3": ("concat_dimension = 0", "concat_dimension = -1"),
            "C4": ("split_count = 2", "split_count = 0"),
            "C5": _TWICE,
            "C6": _GRID,
            "C7": _OUTSIDE,
            "C8": ("split_count = 2", "split_count = 4"),
            "C9": ("-> tensor<4x2xf32>", "-> tensor<4x4xf32>"),
        },
    ),
    OpCase(
        "reduce_scatter",
        f"{_ADD} {{scatter_dimension = 0 : i64, {_GLOBAL}}} : (tensor<4x3xf32>) -> tensor<2x3xf32>",
        {
            "C1": [("(tensor<4x3xf32>)", "(tensor<5x3xf32>)"), ("-> tensor<2x3xf32>", "-> tensor<5x3xf32>")],
            "C2": ("scatter_dimension = 0", "scatter_dimension = 2"),
            **_groups(3),
            "C7": _THREE,
            "C8": ("-> tensor<2x3xf32>", "-> tensor<2x4xf32>"),
            "C9": ("-> tensor<2x3xf32>", "-> tensor<2x3xf64>"),
        },
    ),
    OpCase(
        "collective_broadcast",
        f"{{{_GROUPS}}} : (tensor<2xf32>) -> tensor<2xf32>",
        {
            "C1": _TWICE,
            "C2": ("[0, 2], [1, 3]", "[0, 2], [1, -1]"),
            "C3": ("-> tensor<2xf32>", "-> tensor<3xf32>"),
        },
    ),
    OpCase(
        "collective_broadcast",
        f"{{{_GROUPS}, has_dynamic_root}} : (tensor<2xf32>, tensor<f32>, tensor<2xi32>) -> "
        "(tensor<2xf32>, tensor<f32>)",
        {
            "C4": ("tensor<2xi32>) ->", "tensor<3xi32>) ->"),
            "C5": ("-> (tensor<2xf32>, tensor<f32>)", "-> tensor<2xf32>"),
            "C6": _VALUE,
        },
    ),
    OpCase(
        "collective_permute",
        f"{{{_PAIRS}}} : (tensor<2xf32>) -> tensor<2xf32>",
        {**_pairs("C"), "C5": ("-> tensor<2xf32>", "-> tensor<3xf32>")},
    ),
    OpCase(
        "collective_reduce",
        f"{_ADD} {{{_GROUPS}}} : (tensor<2xf32>) -> tensor<2xf32>",
        {"C1": _TWICE, "C2": _OUTSIDE, "C3": ("-> tensor<2xf32>", "-> tensor<3xf32>"), "C4": _THREE},
    ),
    OpCase(
        "async_start",
        f'({{^bb0(%x: tensor<2xf32>):\n %g = "stablehlo.collective_permute"(%x) {{{_PAIRS}}} : (tensor<2xf32>) -> '
        "tensor<2xf32>\n stablehlo.return %g : tensor<2xf32>}) : (tensor<2xf32>) -> "
        "!stablehlo.future<tensor<2xf32>>",
        {
            "C1": (" stablehlo.return %g", " %h = stablehlo.negate %g : tensor<2xf32>\n stablehlo.return %g"),
            "C2": (f'"stablehlo.collective_permute"(%x) {{{_PAIRS}}}', '"stablehlo.negate"(%x)'),
            "C3": (": (tensor<2xf32>) -> !stablehlo", ": (tensor<2xf64>) -> !stablehlo"),
            "C4": ("future<tensor<2xf32>>", "future<tensor<3xf32>>"),
        },
    ),
    OpCase(
        "async_done",
        ": (!stablehlo.future<tensor<2xf32>>) -> tensor<2xf32>",
        {"C1": ("-> tensor<2xf32>", "-> tensor<3xf32>")},
    ),
    OpCase(
        "send",
        f"{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, {_PAIRS}}} : "
        "(tensor<2xf32>, !stablehlo.token) -> !stablehlo.token",
        {**_pairs("C"), "C5": ("type = 1", "type = 2")},
    ),
    OpCase(
        "recv",
        f"{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, {_PAIRS}}} : "
        "(!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)",
        {**_pairs("C"), "C5": ("type = 1", "type = 3")},
    ),
    OpCase(
        "infeed",
        ": (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)",
        {
            "C1": ("-> (tensor<2xf32>, !stablehlo.token)", "-> ()"),
            "C2": ("-> (tensor<2xf32>, !stablehlo.token)", "-> (!stablehlo.token, !stablehlo.token)"),
            "C3": ("-> (tensor<2xf32>, !stablehlo.token)", "-> (tensor<2xf32>, tensor<2xf32>)"),
        },
    ),
]
