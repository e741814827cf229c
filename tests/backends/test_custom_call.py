"""The registry of custom calls, the calls that change nothing, and LAPACK's as JAX lowers jnp.linalg to them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.backends.kernels import TARGETS
from tests.backends.modules import here, main


@pytest.fixture
def registry() -> Iterator[Callable[[str, Callable[..., Any]], None]]:
    """register_custom_call, whose registrations end with the test."""
    before = dict(TARGETS)
    yield spmd.register_custom_call
    TARGETS.clear()
    TARGETS.update(before)


CALL = """%r:2 = stablehlo.custom_call @my.target(%0) {backend_config = {scale = 3.0 : f32, "name" = "x", axes = [0, 1],
    flags = array<i64: 1, 2>}, api_version = 4 : i32, extra = true} : (tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)"""


def test_a_registered_function_gets_arrays_and_plain_attributes(registry: Callable[..., None]) -> None:
    seen: dict[str, Any] = {}

    def function(x: np.ndarray, attributes: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        seen.update(attributes)
        return x * np.float32(attributes["backend_config"]["scale"]), np.int32(7)

    registry("my.target", function)
    x = np.arange(3, dtype=np.float32)
    first, second = here(main(CALL, [x], "%r#0, %r#1 : tensor<3xf32>, tensor<i32>"), x)
    np.testing.assert_array_equal(first, 3 * x)
    assert int(second) == 7
    assert seen["backend_config"] == {"scale": 3.0, "name": "x", "axes": (0, 1), "flags": (1, 2)}
    assert seen["extra"] is True
    assert [str(type) for type in seen["result_types"]] == ["tensor<3xf32>", "tensor<i32>"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros(3, np.float32), "returned 1 values where 2 are declared"),
        ((np.zeros(4, np.float32), np.int32(0)), r"float32 of shape \(4,\) as result 0, declared tensor<3xf32>"),
        ((np.zeros(3, np.float64), np.int32(0)), "float64"),
    ],
)
def test_what_it_returns_must_be_what_is_declared(registry: Callable[..., None], returned: Any, message: str) -> None:
    registry("my.target", lambda x, attributes: returned)
    x = np.zeros(3, np.float32)
    with pytest.raises(spmd.ExecutionError, match=message):
        here(main(CALL, [x], "%r#0 : tensor<3xf32>"), x)


def test_memory_that_a_function_keeps_is_not_written_into(registry: Callable[..., None]) -> None:
    kept = np.ones(3, np.float32)
    registry("my.kept", lambda x, attributes: kept)
    lines = """%k = stablehlo.custom_call @my.kept(%0) : (tensor<3xf32>) -> tensor<3xf32>
      %s = stablehlo.add %k, %0 : tensor<3xf32>
      %t = stablehlo.multiply %s, %s : tensor<3xf32>"""
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(here(main(lines, [x], "%t : tensor<3xf32>"), x)[0], (x + 1) ** 2)
    assert kept.tolist() == [1, 1, 1]


def test_an_unknown_target_is_refused_by_name_when_compiled() -> None:
    text = main(
        "%r = stablehlo.custom_call @no.such(%0) : (tensor<f32>) -> tensor<f32>", [np.float32(0)], "%r : tensor<f32>"
    )
    with pytest.raises(spmd.CompileError, match=r"no custom call target named 'no\.such'") as caught:
        spmd.compile(spmd.parse(text, name="calls.mlir"))
    assert str(caught.value).startswith("calls.mlir:2:")


def test_placement_changes_nothing() -> None:
    x = np.arange(3, dtype=np.float32)
    for name in ("MoveToHost", "LayoutConstraint", "annotate_device_placement"):
        lines = f"%r = stablehlo.custom_call @{name}(%0) : (tensor<3xf32>) -> tensor<3xf32>"
        np.testing.assert_array_equal(here(main(lines, [x], "%r : tensor<3xf32>"), x)[0], x)


def test_ops_that_older_frontends_wrote_as_calls() -> None:
    x = np.array([-1.0, 0.0, 2.0], np.float32)
    lines = "%r = stablehlo.custom_call @mhlo.erf(%0) {mhlo.attributes = {}} : (tensor<3xf32>) -> tensor<3xf32>"
    np.testing.assert_allclose(
        here(main(lines, [x], "%r : tensor<3xf32>"), x)[0], [-0.8427008, 0, 0.9953223], rtol=1e-6
    )


# --- LAPACK ----------------------------------------------------------------------------------------------------------


def matrix(*shape: int, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if dtype.startswith("c") else x.astype(dtype)


def _programs() -> dict[str, tuple[str, tuple[tuple[int, ...], ...]]]:
    """Name -> (expression over jnp.linalg, scipy's and the arguments, shapes of the arguments)."""
    square, tall, many = (5, 5), (7, 4), (20, 3, 3)
    return {
        "solve": ("la.solve(a, b)", (square, (5,))),
        "solve many": ("la.solve(a, b)", (many, (20, 3, 2))),
        "solve very many": ("la.solve(a, b)", ((60, 4, 4), (60, 4, 2))),
        "lu of very many": ("lax.lu(a)", ((5, 40, 4, 6),)),
        "cholesky of very many": ("la.cholesky(a @ a.conj().mT + np.eye(3), upper=True)", ((40, 3, 3),)),
        "cholesky of very many, one of which has none": (
            "la.cholesky(a @ a.conj().mT + np.eye(3) * (np.arange(40) - 3)[:, None, None])",
            ((40, 3, 3),),
        ),
        "inv": ("la.inv(a)", ((3, 4, 4),)),
        "det": ("la.det(a)", ((3, 4, 4),)),
        "slogdet": ("la.slogdet(a)", (square,)),
        "qr": ("la.qr(a)", (tall,)),
        "qr complete": ("la.qr(a, mode='complete')", (tall,)),
        "qr wide": ("la.qr(a)", ((3, 6),)),
        "qr pivoting": ("sl.qr(a, pivoting=True, mode='economic')", (tall,)),
        "svd": ("la.svd(a, full_matrices=False)", (tall,)),
        "svd full": ("la.svd(a)", (tall,)),
        "svd by QR": ("lax.svd(a, algorithm=lax.SvdAlgorithm.QR)", (tall,)),
        "svd values": ("la.svd(a, compute_uv=False)", ((3, 4, 5),)),
        "eigh": ("la.eigh(a @ a.conj().T)", (square,)),
        "eigvalsh": ("la.eigvalsh(a @ a.conj().T)", (square,)),
        "eig": ("la.eig(a)", (square,)),
        "eigvals": ("la.eigvals(a)", ((2, 4, 4),)),
        "cholesky": ("la.cholesky(a @ a.conj().T + 5 * np.eye(5))", (square,)),
        "cholesky of none": ("la.cholesky(-a @ a.conj().T)", (square,)),
        "lstsq": ("la.lstsq(a, b)[0]", (tall, (7,))),
        "lu": ("sl.lu(a)", (square,)),
        "solve_triangular": ("sl.solve_triangular(a + 5 * np.eye(5), b, trans=1, lower=True)", (square, (5, 2))),
        "schur": ("sl.schur(a)[0]", (square,)),
        "hessenberg": ("sl.hessenberg(a)", (square,)),
        "tridiagonal_solve": ("lax.tridiagonal_solve(b, b + 5, b, a)", ((5, 2), (5,))),
        "tridiagonal_solve, perturbed": (
            "lax.tridiagonal_solve(b, b + 5, b, a, perturb_singular=True)",
            ((5, 2), (5,)),
        ),
        "sparse rows": ("sparse.BCSR.fromdense(np.where(a > 0, a, 0), nse=26) @ b", (square, (5, 2))),
        "sparse rows by a vector": ("sparse.BCSR.fromdense(np.where(a > 0, a, 0), nse=26) @ b", (square, (5,))),
        "tridiagonal": ("lax.tridiagonal(a @ a.conj().T)[1:3]", (square,)),
        "approximate top k": ("top(a)", ((5, 40),)),
    }


_COMPLEX = (
    "solve",
    "solve very many",
    "cholesky of very many",
    "qr",
    "svd",
    "eigh",
    "eig",
    "cholesky",
    "schur",
    "solve_triangular",
)


@pytest.mark.sampled(15)
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in _programs()), *((name, "complex64") for name in _COMPLEX)]
)
def test_programs_lowered_for_cpu(name: str, dtype: str) -> None:
    """As JAX's own results on CPU, which come from the same routines."""
    jax = pytest.importorskip("jax", reason="programs are lowered by JAX")
    expression, shapes = _programs()[name]
    names = {
        "la": jax.numpy.linalg, "sl": jax.scipy.linalg, "lax": jax.lax.linalg, "np": jax.numpy,
        "sparse": __import__("jax.experimental.sparse", fromlist=["sparse"]),
        "top": lambda a: jax.lax.approx_max_k(a, 4),
    }  # fmt: skip
    function = jax.jit(eval(f"lambda {'a, b' if len(shapes) == 2 else 'a'}: {expression}", names))
    arrays = [matrix(*shape, dtype=dtype) for shape in shapes]
    got = here(function.lower(*arrays).as_text(), *arrays)
    for ours, theirs in zip(got, jax.tree_util.tree_leaves(function(*arrays)), strict=True):
        theirs = np.asarray(theirs)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(
            ours, theirs, rtol=2e-3, atol=2e-3 * max(1, np.abs(theirs[np.isfinite(theirs)]).max(initial=0))
        )


def test_a_singular_tridiagonal_system_has_a_finite_solution_when_perturbed() -> None:
    jax = pytest.importorskip("jax", reason="programs are lowered by JAX")
    rows = [np.array(row, np.float32) for row in ([0, 1, 1], [1, 1, 1], [1, 0, 0])]
    b = np.array([[1], [2], [3]], np.float32)
    solve = jax.jit(lambda *a: jax.lax.linalg.tridiagonal_solve(*a, perturb_singular=True))
    (got,) = here(solve.lower(*rows, b).as_text(), *rows, b)
    np.testing.assert_allclose(got, solve(*rows, b), rtol=1e-3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_perturbed_tridiagonal_systems_of_zeros(size: int, dtype: type) -> None:
    """Pivots are at least the smallest normal number: the solution is 0 where the right side is, and finite."""
    jax = pytest.importorskip("jax", reason="programs are lowered by JAX")
    with jax.enable_x64(True):
        solve = jax.jit(lambda *a: jax.lax.linalg.tridiagonal_solve(*a, perturb_singular=True))
        rows, b = [np.zeros(size, dtype)] * 3, np.tile(np.array([0, 1], dtype), (size, 1))
        (got,) = here(solve.lower(*rows, b).as_text(), *rows, b)
        np.testing.assert_array_equal(got, solve(*rows, b))
    assert (got[:, 0] == 0).all() and np.isfinite(got).all()


def test_eigenvalues_of_what_is_not_finite_are_nan(capfd: pytest.CaptureFixture[str]) -> None:
    jax = pytest.importorskip("jax", reason="programs are lowered by JAX")
    x = np.eye(3, dtype=np.float32)
    x[1, 2] = np.nan
    (got,) = here(jax.jit(jax.numpy.linalg.eigvals).lower(x).as_text(), x)
    assert np.isnan(got).all()
    assert capfd.readouterr() == ("", "")
