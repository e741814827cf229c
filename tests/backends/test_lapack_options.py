"""LAPACK's custom calls with options or operands that are not theirs: one sentence at the call's place."""

import pytest

import spmd

ROUTINES = ["potrf", "getrf", "geqrf", "gesdd", "syevd", "trsm", "geev", "gees", "gtsv", "orgqr", "gehrd", "sytrd"]
CONFIGS = [
    "", "mhlo.backend_config = {}", 'backend_config = "junk"', 'mhlo.backend_config = {uplo = 76 : ui8, mode = "x"}',
    "mhlo.backend_config = {uplo = 99 : ui8, mode = 300 : i32, side = [], diag = 1.0 : f32}",
]  # fmt: skip
SIGNATURES = [
    (["tensor<2x2xi32>"], "tensor<2x2xi32>"),
    ([], "tensor<2x2xf32>"),
    (["tensor<f32>", "tensor<2x3xf32>", "tensor<2xf32>", "tensor<f32>", "tensor<f32>"], "tensor<2xf32>"),
    (["tensor<2xf32>"], "tensor<2xf32>"),
]


@pytest.mark.parametrize("routine", ROUTINES)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_malformed_call_is_refused_at_its_place(routine: str, config: str) -> None:
    for types, result in SIGNATURES:
        arguments = ", ".join(f"%{i}: {type_}" for i, type_ in enumerate(types))
        operands = ", ".join(f"%{i}" for i in range(len(types)))
        call = (
            f"stablehlo.custom_call @lapack_s{routine}_ffi({operands}) {{{config}}} : ({', '.join(types)}) -> {result}"
        )
        text = f"func.func @main({arguments}) -> {result} {{\n  %r = {call}\n  return %r : {result} }}"
        with pytest.raises(
            spmd.CompileError, match=rf"call\.mlir:2:\d+: stablehlo\.custom_call: lapack_s{routine}_ffi: "
        ):
            spmd.compile(spmd.parse(text, "call.mlir"))


@pytest.mark.parametrize("length", ["0", "-4", "4, 0", "8", "4, 8"])
@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
def test_the_length_of_a_fourier_transform_is_its_operands(kind: str, length: str) -> None:
    op = f"stablehlo.fft %x, type = {kind}, length = [{length}]"
    text = f"func.func @main(%x: tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>> {{\n  %0 = {op} : "
    text += "(tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>\n  return %0 : tensor<4x4xcomplex<f32>> }"
    with pytest.raises(spmd.VerificationError, match=r"<string>:2:\d+: stablehlo\.fft: .*fft_length"):
        spmd.parse(text)
