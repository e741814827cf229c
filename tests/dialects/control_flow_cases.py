"""Cases of branches, loops, tuples and composites."""

from __future__ import annotations

from tests.dialects.cases import OpCase

_BRANCH = "{%c = stablehlo.constant dense<1.0> : tensor<f32>\n stablehlo.return %c : tensor<f32>}"
_OTHER = "{%d = stablehlo.constant dense<2.0> : tensor<f32>\n stablehlo.return %d : tensor<f32>}"
_TAKES = (_OTHER, "{^bb0(%z: tensor<f32>):\n stablehlo.return %z : tensor<f32>}")
_INTEGER = (_OTHER, "{%d = stablehlo.constant dense<2> : tensor<i32>\n stablehlo.return %d : tensor<i32>}")

CASES = [
    OpCase(
        "if",
        f"({_BRANCH}, {_OTHER}) : (tensor<i1>) -> tensor<f32>",
        {"C1": _TAKES, "C2": _INTEGER, "C3": ("-> tensor<f32>", "-> tensor<f64>")},
    ),
    OpCase(
        "case",
        f"({_BRANCH}, {_OTHER}) : (tensor<i32>) -> tensor<f32>",
        {
            "C1": (f"({_BRANCH}, {_OTHER})", ""),
            "C2": _TAKES,
            "C3": _INTEGER,
            "C4": ("-> tensor<f32>", "-> tensor<f64>"),
        },
    ),
    OpCase(
        "while",
        "({^bb0(%x: tensor<f32>):\n %t = stablehlo.constant dense<true> : tensor<i1>\n "
        "stablehlo.return %t : tensor<i1>}"
        ", {^bb0(%x: tensor<f32>):\n stablehlo.return %x : tensor<f32>}) : (tensor<f32>) -> tensor<f32>",
        {
            "C1": ("stablehlo.return %t : tensor<i1>", "stablehlo.return %t, %t : tensor<i1>, tensor<i1>"),
            "C2": ("stablehlo.return %x : tensor<f32>", "stablehlo.return %x, %x : tensor<f32>, tensor<f32>"),
            "C3": ("-> tensor<f32>", "-> tensor<f64>"),
        },
    ),
    OpCase("optimization_barrier", ": (tensor<f32>) -> tensor<f32>", {"C1": ("-> tensor<f32>", "-> tensor<f64>")}),
    OpCase(
        "tuple",
        ": (tensor<f32>, tensor<i32>) -> tuple<tensor<f32>, tensor<i32>>",
        {"C1": ("-> tuple<tensor<f32>, ", "-> tuple<tensor<f64>, ")},
    ),
    OpCase(
        "get_tuple_element",
        "{index = 1 : i32} : (tuple<tensor<f32>, tensor<i32>>) -> tensor<i32>",
        {"C1": ("index = 1", "index = 2"), "C2": ("-> tensor<i32>", "-> tensor<f32>")},
    ),
    OpCase(
        "composite",
        '{name = "my.op", decomposition = @decomposed} : (tensor<f32>) -> tensor<f32>',
        {
            "C1": ('"my.op"', '"op"'),
            "C2": ("decomposition = @decomposed", "decomposition = @missing"),
            "C3": [
                ("@decomposed(%x: tensor<f32>)", "@decomposed(%x: tensor<f64>)"),
                (
                    "{func.return %x : tensor<f32>}",
                    "{%y = stablehlo.convert %x : (tensor<f64>) -> tensor<f32>\n func.return %y : tensor<f32>}",
                ),
            ],
            "C4": ("-> tensor<f32>", "-> tensor<?xf32>"),
        },
        functions="func.func private @decomposed(%x: tensor<f32>) -> (tensor<f32>) {func.return %x : tensor<f32>}",
    ),
]  # fmt: skip
