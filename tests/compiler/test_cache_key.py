"""The key of a compiled program: what code depends on changes it, and nothing that compiling reads is left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.analysis import custom_calls
from spmd.analysis.portable import OpNumbers
from spmd.backends.kernels import TARGETS
from spmd.backends.llvm import backend
from spmd.compiler.pipeline import cache_key
from spmd.compiler.pipeline.options import CompileOptions, chosen_options, default_backends
from spmd.dialects.custom_call_targets import REGISTERED
from spmd.support import machine

if "llvm" not in default_backends():
    pytest.skip("native code alone is kept", allow_module_level=True)

CHOLESKY = "lapack_spotrf_ffi"
TEXT = f"""
func.func @main(%a: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>) {{
  %r:2 = stablehlo.custom_call @{CHOLESKY}(%a) {{mhlo.backend_config = {{uplo = 76 : ui8}}}}
    : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>)
  return %r#0, %r#1 : tensor<3x3xf32>, tensor<i32>
}}
func.func @other(%a: tensor<3x3xf32>) -> tensor<3x3xf32> {{ return %a : tensor<3x3xf32> }}"""


def key(text: str = TEXT, function: str = "main", **options: Any) -> str | None:
    module = spmd.parse(text)
    return cache_key.cache_key(
        module, module.function(function), chosen_options(spmd.ProcessGrid(2, 1), options), OpNumbers(module)
    )


@pytest.fixture
def registered() -> Iterator[Callable[..., None]]:
    """Registers a function for the factorization, until the test ends."""
    built_in, batched = TARGETS[CHOLESKY], custom_calls.takes_batch(CHOLESKY)
    assert not custom_calls.is_registered(CHOLESKY)

    def register(**options: Any) -> None:
        spmd.register_custom_call(CHOLESKY, lambda a, attributes: (-a, np.int32(7)), **options)

    yield register
    custom_calls.declare_registered(CHOLESKY, takes_batch=batched)
    REGISTERED.remove(CHOLESKY)
    TARGETS[CHOLESKY] = built_in


def test_equal_programs_have_one_key_and_each_option_another() -> None:
    assert key() == key(f"// elsewhere\n{TEXT}") is not None
    different: list[dict[str, Any]] = [
        {"reproducible": True}, {"combine_threshold": 0}, {"overlap": True}, {"excess_precision": False},
        {"check_collectives": True},
        {"collective_timeout": 3.0}, {"collective_abort": True}, {"backends": ("llvm",)}, {"donate": (0,)},
        {"donate": "attributes"}, {"threads": 7}, {"mpmd": True}, {"processor": "host"},
    ]  # fmt: skip
    covered = {name for options in different for name in options}
    assert covered == CompileOptions.__annotations__.keys() - {"watch"}, "what is watched is not kept"
    keys = [key(**options) for options in different]
    assert len({key(), key(function="other"), *keys}) == len(keys) + 2


@pytest.mark.parametrize(("variable", "value"), [("SPMD_BACKENDS", "llvm"), ("OMP_NUM_THREADS", "19"),
                                                 ("NPY_DISABLE_CPU_FEATURES", "AVX2")])  # fmt: skip
def test_what_the_environment_says_is_part_of_the_key(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key()
    monkeypatch.setenv(variable, value)
    assert key() != before


def test_a_registered_function_takes_the_place_of_what_is_built_in_whatever_is_kept(
    registered: Callable[..., None],
) -> None:
    matrix = np.eye(3, dtype=np.float32) * 4
    for _ in range(2):
        np.testing.assert_array_equal(spmd.compile(spmd.parse(TEXT))(matrix)[0], np.eye(3) * 2)
    registered()
    for _ in range(2):
        factor, info = spmd.compile(spmd.parse(TEXT))(matrix)
        np.testing.assert_array_equal(factor, -matrix)
        assert info == 7


def test_how_a_function_is_registered_is_part_of_the_key(registered: Callable[..., None]) -> None:
    keys = [key()]
    registered()
    keys.append(key())
    registered(takes_batch=True)
    keys.append(key())
    spmd.register_custom_call("tests.not_in_the_program", lambda attributes: None)
    assert len(set(keys)) == 3 and key() == keys[-1]


class Recording(dict[str, str]):
    """An environment that notes which variables are read."""

    def __init__(self) -> None:
        super().__init__(os.environ)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        self.read.add(name)
        return super().get(name, default)


def test_each_variable_that_compiling_reads_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Recording()
    monkeypatch.setattr(os, "environ", environment)
    text = """func.func @main(%x: tensor<64x64xf32>) -> tensor<64xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %e = stablehlo.exponential %x : tensor<64x64xf32>
      %p = stablehlo.dot_general %e, %x, contracting_dims = [1] x [0]
        : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %s = stablehlo.reduce(%p init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
      %r = "stablehlo.all_reduce"(%s) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %t = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %t : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<64xf32>) -> tensor<64xf32>
      return %r : tensor<64xf32>
    }"""
    for cached in (machine._core, cache_key._libraries, backend.blas_file, cache_key._sources):
        cached.cache_clear()
    spmd.compile(spmd.parse(text), spmd.ProcessGrid(2, 1))
    assert "SPMD_BACKENDS" in environment.read and "OMP_NUM_THREADS" in environment.read
    assert environment.read <= set(cache_key.VARIABLES)
    parts = {part for part in cache_key.VARIABLES.values() if part is not None}
    assert parts <= set(cache_key.PARTS)
