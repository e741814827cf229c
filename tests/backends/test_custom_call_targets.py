"""Calls of built-in targets with types that are not theirs, and that every target has said what is."""

import numpy as np
import pytest

import spmd
from spmd.backends.kernels import TARGETS
from spmd.dialects.custom_call_targets import REGISTERED, is_declared
from tests.backends.modules import here, main

#: Targets that this package writes, or whose values any types may have.
OTHERS = {
    *(
        "spmd.expect_agreement",
        "spmd.expect_transfer",
        "spmd.each_process",
        "spmd.run_fed",
        "spmd.rng_get_and_update_state",
    ),
    *("check.expect_eq", "check.expect_almost_eq", "check.expect_close", "check.eq"),
    *("CreateBuffer", "AllocateBuffer", "Pin", "Unpin"),
    # Their sizes are values: what they stand for is checked when they run.
    *("stablehlo.dynamic_reduce_window", "stablehlo.dynamic_top_k", "stablehlo.dynamic_approx_top_k"),
    "stablehlo.dynamic_rng_bit_generator",
}


def test_every_target_is_declared() -> None:
    assert {name for name in TARGETS if not is_declared(name)} - REGISTERED == OTHERS & TARGETS.keys()


TRSM = "backend_config = {diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}, api_version = 4 : i32"
POTRF = "backend_config = {uplo = 76 : ui8}, api_version = 4 : i32"
SVD = "backend_config = {mode = 83 : ui8}, api_version = 4 : i32"
ORMQR = "backend_config = {left = true, transpose = false}, api_version = 4 : i32"
TOP = "backend_config = {top_k = 9 : i64, reduction_dim = 0 : i64}, api_version = 4 : i32"
ROWS = "backend_config = {low = 1 : i32, high = 100 : i32}, api_version = 4 : i32"
M, V, S = "tensor<3x3xf32>", "tensor<3xf32>", "tensor<i32>"
WRONG = {
    "trsm's result is of b's shape": ("lapack_strsm_ffi", TRSM, [M, "tensor<3x2xf32>"], ["tensor<100000x1000xf32>"]),
    "trsm's sides fit": ("lapack_strsm_ffi", TRSM, ["tensor<4x4xf32>", "tensor<3x2xf32>"], ["tensor<3x2xf32>"]),
    "potrf's batches are equal": ("lapack_spotrf_ffi", POTRF, ["tensor<2x3x3xf32>"],
                                  ["tensor<5x3x3xf32>", "tensor<5xi32>"]),
    "potrf's letter is its type": ("lapack_dpotrf_ffi", POTRF, [M], [M, S]),
    "potrf takes squares": ("lapack_spotrf_ffi", POTRF, ["tensor<3x4xf32>"], ["tensor<3x4xf32>", S]),
    "getrf has min(m, n) pivots": ("lapack_sgetrf_ffi", "", ["tensor<3x2xf32>"],
                                   ["tensor<3x2xf32>", "tensor<3xi32>", S]),
    "getrf's pivots are i32": ("lapack_sgetrf_ffi", "", [M], [M, "tensor<3xi64>", S]),
    "orgqr has as many taus as columns at most": ("lapack_sorgqr_ffi", "", [M, "tensor<9xf32>"], [M]),
    "ormqr's reflectors are columns": ("lapack_sormqr_ffi", ORMQR, ["tensor<3x2xf32>", V, M], [M]),
    "gehrd's rows are the matrix's": ("lapack_sgehrd_ffi", ROWS, [M], [M, "tensor<2xf32>", S]),
    "gesdd's factors fit": ("lapack_sgesdd_ffi", SVD, [M], [M, V, "tensor<3x4xf32>", M, S]),
    "heevd's values are real": ("lapack_cheevd_ffi", POTRF, ["tensor<3x3xcomplex<f32>>"],
                                ["tensor<3x3xcomplex<f32>>", "tensor<3xcomplex<f32>>", S]),
    "gtsv's diagonals are of one length": ("lapack_sgtsv_ffi", "", [V, V, "tensor<2xf32>", "tensor<3x1xf32>"],
                                           [V, V, "tensor<2xf32>", "tensor<3x1xf32>", S]),
    "erf keeps its shape": ("mhlo.erf", "", ["tensor<4xf32>"], ["tensor<100000xf32>"]),
    "topk gives what there is": ("mhlo.topk", "mhlo.attributes = {k = 100 : i64, largest = true}", ["tensor<4xf32>"],
                                 ["tensor<100xf32>", "tensor<100xi32>"]),
    "topk gives the largest": ("mhlo.topk", "mhlo.attributes = {k = 1 : i64, largest = false}", ["tensor<4xf32>"],
                               ["tensor<1xf32>", "tensor<1xi32>"]),
    "Sharding keeps elements": ("Sharding", "", ["tensor<4000xi8>"], ["tensor<4000xf64>"]),
    "barriers keep elements": ("OptimizationBarrier", "", ["tensor<4000xi8>"], ["tensor<4000xf64>"]),
    "placement keeps shapes": ("MoveToHost", "", [V], ["tensor<4xf32>"]),
    "ApproxTopK gives what there is": ("ApproxTopK", TOP, ["tensor<4xf32>", "tensor<f32>"], ["tensor<9xf32>"]),
    "a product of rows": ("cpu_csr_sparse_dense_ffi", "", [V, "tensor<3xi32>", "tensor<3xi32>", "tensor<4xf32>"],
                          ["tensor<9xf32>"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_call_that_is_not_its_targets_is_refused(name: str) -> None:
    target, attributes, operands, results = WRONG[name]
    arguments = ", ".join(f"%{place}: {type}" for place, type in enumerate(operands))
    values = ", ".join(f"%{place}" for place in range(len(operands)))
    given = f"({', '.join(operands)}) -> ({', '.join(results)})"
    text = f"""func.func @main({arguments}) -> {results[0]} {{
      %r:{len(results)} = stablehlo.custom_call @{target}({values}) {{{attributes}}} : {given}
      return %r#0 : {results[0]}
    }}"""
    for backends in (("llvm", "numpy"), ("numpy",)):
        with pytest.raises(spmd.CompileError, match=rf"call\.mlir:2:\d+: stablehlo\.custom_call: {target}: "):
            spmd.compile(spmd.parse(text, name="call.mlir"), backends=backends)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_tridiagonal_systems_of_few_equations(size: int, dtype: str) -> None:
    rng = np.random.default_rng(size)
    below, diagonal, above = (rng.standard_normal((2, size)).astype(dtype) for _ in range(3))
    diagonal += 4
    b = rng.standard_normal((2, size, 2)).astype(dtype)
    letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype]
    element = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}[letter]
    v, m = f"tensor<2x{size}x{element}>", f"tensor<2x{size}x2x{element}>"
    line = f"%r:5 = stablehlo.custom_call @lapack_{letter}gtsv_ffi(%0, %1, %2, %3) {{api_version = 4 : i32}} : "
    line += f"({v}, {v}, {v}, {m}) -> ({v}, {v}, {v}, {m}, tensor<2xi32>)"
    arrays = [below, diagonal, above, b]
    x, info = here(main(line, arrays, f"%r#3, %r#4 : {m}, tensor<2xi32>"), *arrays)
    for k in range(2):
        matrix = np.diag(diagonal[k]) + np.diag(below[k][1:], -1) + np.diag(above[k][:-1], 1)
        np.testing.assert_allclose(matrix @ x[k], b[k], rtol=1e-4, atol=1e-5)
    assert info.tolist() == [0, 0]


CSR = """func.func @main(%v: tensor<3xf32>, %s: tensor<3xi32>, %c: tensor<3xi32>, %d: tensor<4xf32>) -> tensor<2xf32> {
  %r = stablehlo.custom_call @cpu_csr_sparse_dense_ffi(%v, %s, %c, %d) {api_version = 4 : i32}
    : (tensor<3xf32>, tensor<3xi32>, tensor<3xi32>, tensor<4xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}"""


def test_rows_and_columns_that_a_sparse_matrix_does_not_have() -> None:
    """SciPy reads where they say."""
    run = spmd.compile(spmd.parse(CSR))
    values, dense = np.ones(3, np.float32), np.arange(4, dtype=np.float32)
    good = np.array([0, 1, 3], np.int32), np.array([1, 2, 3], np.int32)
    assert run(values, *good, dense)[0].tolist() == [1, 5]
    for starts in ([0, 1, 900], [0, 1, -1], [0, 5, 3], [2, 1, 3], [-9, 1, 3], [0, -2, 3]):
        with pytest.raises(spmd.ExecutionError, match=r":2:\d+: stablehlo.custom_call: row starts must be 0"):
            run(values, np.array(starts, np.int32), good[1], dense)
    for columns in ([0, 1, 4], [-1, 0, 1], [2**31 - 1, -(2**31), 0]):
        with pytest.raises(spmd.ExecutionError, match=r":2:\d+: stablehlo.custom_call: columns must be 0 to 3"):
            run(values, good[0], np.array(columns, np.int32), dense)
