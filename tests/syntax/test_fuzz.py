# ruff: noqa: E501 - programs stand as they are printed
"""Mutated programs: they are accepted and print back, or refused with an SpmdError that names a place.

A short run by default; SPMD_FUZZ_SECONDS=600 mutates for as long as that.
"""

import os
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spmd
from spmd.syntax import difference, parse, print_op, split_file
from tests.effort import examples
from tests.syntax.test_attributes import VALUES

CONFORMANCE = Path(__file__).parents[2].parent / "shared" / "conformance"
SECONDS = float(os.environ.get("SPMD_FUZZ_SECONDS", "0"))
LONGEST = 6000

SNIPPETS = [
    """
    #alias = dense<[1, 2]> : tensor<2xi64>
    !type = tensor<2x?xf32, #stablehlo.bounds<?, 4>>
    module @m attributes {mhlo.num_replicas = 2 : i32, a.b = [1, "x\\22", unit, {c = array<i64: 1, 2>}, #alias]} {
      func.func public @main(%arg0: tensor<4x8xf32> {jax.arg_info = "x"}, %arg1: tensor<i1>) -> (tensor<4xf32> {a = 1.5 : f32}) {
        %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
        %1:2 = stablehlo.while(%iterArg = %0, %iterArg_0 = %arg1) : tensor<4xf32>, tensor<i1>
        cond {
          stablehlo.return %iterArg_0 : tensor<i1>
        } do {
          %3 = stablehlo.compare LT, %iterArg, %iterArg, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
          %4 = stablehlo.slice %iterArg [0:4:1] : (tensor<4xf32>) -> tensor<4xf32>
          stablehlo.return %4, %iterArg_0 : tensor<4xf32>, tensor<i1>
        }
        %2 = call @f(%1#0) : (tensor<4xf32>) -> tensor<4xf32>
        return %2 : tensor<4xf32>
      }
      func.func private @f(%arg0: tensor<4xf32>) -> tensor<4xf32> {
        %0 = "stablehlo.sort"(%arg0) <{dimension = 0 : i64, is_stable = true}> ({
        ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
          %1 = stablehlo.compare  LT, %arg1, %arg2,  TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %1 : tensor<i1>
        }) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }
    """,
    """
    func.func @conv(%arg0: tensor<2x9x9x3xf32>, %arg1: tensor<3x3x3x4xf32>) -> tensor<2x5x5x4xf32> {
      %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 1], [1, 1]], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]} : (tensor<2x9x9x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x5x5x4xf32>
      return %0 : tensor<2x5x5x4xf32>
    }
    func.func @gather(%arg0: tensor<3x4x2xi32>, %arg1: tensor<2x3x2xi64>) -> tensor<2x3x2x2xi32> {
      %0 = "stablehlo.gather"(%arg0, %arg1) {dimension_numbers = #stablehlo.gather<offset_dims = [2, 3], collapsed_slice_dims = [0], start_index_map = [1, 0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 2, 2>, indices_are_sorted = false} : (tensor<3x4x2xi32>, tensor<2x3x2xi64>) -> tensor<2x3x2x2xi32>
      return %0 : tensor<2x3x2x2xi32>
    }
    """,
    """
    func.func @quantized(%a: tensor<2x2x!quant.uniform<i8<-127:127>:f32:1, {0.1:-3, 0.5}>>, %t: !stablehlo.token) -> tuple<tensor<2x2x!quant.uniform<i8<-127:127>:f32:1, {0.1:-3, 0.5}>>, !stablehlo.token> {
      %c = stablehlo.constant dense<[(1.0, -2.5), (0x7FC00000, 1.0e-3)]> : tensor<2xcomplex<f32>>
      %h = stablehlo.constant dense<"0x0000803F000000C0"> : tensor<2xf32>
      %b = stablehlo.constant dense<[[true], [false]]> : tensor<2x1xi1>
      %0 = stablehlo.custom_call @target.x(%c) {backend_config = "a\\0Ab", api_version = 1 : i32} : (tensor<2xcomplex<f32>>) -> tensor<2xf32>
      %1 = stablehlo.tuple %a, %t : tuple<tensor<2x2x!quant.uniform<i8<-127:127>:f32:1, {0.1:-3, 0.5}>>, !stablehlo.token>
      "unknown.op"(%0)[^bb1] ({}, {^bb0(%x: tensor<f32>): "other.op"(%x) {m = #some.attr<a, [1]>, t = !some.type<"x">} : (tensor<f32>) -> ()}) : (tensor<2xf32>) -> () loc("file.py":1:2)
    ^bb1:
      return %1 : tuple<tensor<2x2x!quant.uniform<i8<-127:127>:f32:1, {0.1:-3, 0.5}>>, !stablehlo.token>
    }
    """,
    """
    sdy.mesh @mesh = <["x"=2, "y"=4]>
    func.func @main(%arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>}) -> tensor<8x8xf32> {
      %0 = sdy.sharding_constraint %arg0 <@mesh, [{}, {"y"}]> : tensor<8x8xf32>
      %1 = stablehlo.dot_general %0, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, HIGHEST] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %2 = "stablehlo.all_reduce"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %3 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %3 : tensor<f32>
      }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      return %2 : tensor<8x8xf32>
    }
    """,
]  # fmt: skip

SNIPPETS.append("module attributes {" + ",\n".join(f"a{i} = {text}" for i, (text, _) in enumerate(VALUES)) + "} {}")

_TOKEN = re.compile(r"[%@#^!]?[\w.$]+|\s+|->|.", re.DOTALL)
_ODD = [
    "", "(", ")", "{", "}", "<", ">", "[", "]", ",", ":", "=", "->", '"', "%0", "%arg0", "@f", "#a", "!t", "^bb0", "-1", "0",
    "99999999999999999999", "1.0e400", "0x", "0xFFFFFFFFFFFFFFFFFF", "dense<>", "dense<1>", "tensor<f32>", "tensor<?xf32>",
    "tensor<-1xf32>", "tensor<0xf32>", "tensor<9223372036854775807x2xi8>", "i1", "none", "unit", "loc(#l)", "// x\n", "\n", "\x00",
    "\ufeff", "é", "array<i64>", "array<i1: true>", "#stablehlo.conv<raw input_batch_dimension = -9>", "() -> ()", "{-#", "#-}",
    "complex<f32>", "!stablehlo.token", "tuple<>", "dense_resource<x> : tensor<1xf32>", "%0:0", "%0:2", "%0#7", "func.func",
    "module", "stablehlo.return", "<{}>", "({})", "{a}", "\\", "?", "*", "affine_map<(d0) -> (d0)>",
]  # fmt: skip


def _seeds() -> list[str]:
    programs = list(SNIPPETS)
    for file in sorted(CONFORMANCE.rglob("*.mlir")):
        if file.stat().st_size < 200_000:
            programs += [part.strip() for part in split_file(file.read_text()) if 0 < len(part.strip()) < LONGEST]
    return programs


SEEDS = _seeds()


def _mutate(random_: random.Random) -> str:
    return _mutated(random_.choice(SEEDS if random_.random() < 0.8 else SNIPPETS), random_)


def _mutated(text: str, random_: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    for _ in range(random_.choice([1, 1, 1, 2, 3, 8])):
        at = random_.randrange(len(tokens))
        kind = random_.randrange(8)
        if kind == 0:
            del tokens[at : at + random_.choice([1, 1, 2, 5, 40])]
        elif kind == 1:
            tokens[at] = random_.choice(_ODD)
        elif kind == 2:
            tokens.insert(at, random_.choice(_ODD))
        elif kind == 3:
            tokens[at] = random_.choice(tokens)
        elif kind == 4:
            tokens[at:at] = tokens[random_.randrange(len(tokens)) :][: random_.choice([1, 3, 10, 60])]
        elif kind == 5:
            tokens[at] = _change(tokens[at], random_)
        elif kind == 6:
            del tokens[at + 1 :]
        else:
            other = random_.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        if not tokens:
            break
    return "".join(tokens)


def _change(token: str, random_: random.Random) -> str:
    if token.isdecimal():
        return str(max(0, int(token) + random_.choice([-2, -1, 1, 2, 100, 2**31, 2**63])))
    if not token:
        return "x"
    at = random_.randrange(len(token))
    return token[:at] + random_.choice(["", "x", "0", "-", ".", chr(random_.randrange(1, 0x250))]) + token[at + 1 :]


def _check(text: str) -> None:
    try:
        module = spmd.parse(text)
    except spmd.SpmdError as error:
        assert error.diagnostics
        lines = text.count("\n") + 1
        for diagnostic in error.diagnostics:
            assert 1 <= diagnostic.location.line <= lines, f"no place: {error}"
        return
    for generic in (False, True):
        again = parse(print_op(module, generic=generic))
        assert difference(module, again) is None


@settings(
    max_examples=examples(600) if not SECONDS else 1,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.integers(0, 2**63 - 1))
def test_a_mutated_program_is_understood_or_refused_at_a_place(seed: int) -> None:
    _check(_mutate(random.Random(seed)))


@pytest.mark.skipif(not SECONDS, reason="runs for SPMD_FUZZ_SECONDS")
def test_mutating_for_as_long_as_was_asked() -> None:
    end = time.monotonic() + SECONDS
    seed = int(os.environ.get("SPMD_FUZZ_SEED", time.time_ns()))
    while time.monotonic() < end:
        seed += 1
        text = _mutate(random.Random(seed))
        try:
            _check(text)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{text}") from error


RUNNABLE = """
func.func @main(%x: tensor<4x4xf32>, %i: tensor<2xi32>, %p: tensor<i1>) -> (tensor<4x4xf32>, tensor<?xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.pad %1, %z, low = [1], high = [-1], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3:2 = stablehlo.while(%n = %one, %v = %0) : tensor<i32>, tensor<4x4xf32>
    cond {
      %9 = stablehlo.constant dense<3> : tensor<i32>
      %8 = stablehlo.compare LT, %n, %9, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %7 = stablehlo.add %n, %one : tensor<i32>
      %6 = stablehlo.tanh %v : tensor<4x4xf32>
      stablehlo.return %7, %6 : tensor<i32>, tensor<4x4xf32>
    }
  %4 = "stablehlo.gather"(%3#1, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> : (tensor<4x4xf32>, tensor<2xi32>) -> tensor<2x4xf32>
  %5 = stablehlo.slice %4 [0:1, 0:4] : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %10 = stablehlo.concatenate %5, %4, dim = 0 : (tensor<1x4xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %11 = "stablehlo.reduce_window"(%10, %z) <{window_dimensions = array<i64: 2, 1>, padding = dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %12 = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %12 : tensor<f32>
  }) : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>
  %13 = "stablehlo.fft"(%2) <{fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 4>}> : (tensor<4xf32>) -> tensor<3xcomplex<f32>>
  %14 = stablehlo.real %13 : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
  %15:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%0) {api_version = 4 : i32, mhlo.backend_config = {}} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xi32>, tensor<i32>)
  %16 = call @f(%15#0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %17 = stablehlo.convert %14 : (tensor<3xf32>) -> tensor<?xf32>
  return %16, %17 : tensor<4x4xf32>, tensor<?xf32>
}
func.func private @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %2 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %2 : tensor<f32>
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
"""


def _compiled(text: str) -> spmd.Executable | None:
    try:
        return spmd.compile(spmd.parse(text))
    except spmd.SpmdError as error:
        lines = text.count("\n") + 1
        for diagnostic in error.diagnostics:
            assert 1 <= diagnostic.location.line <= lines, f"no place: {error}"
    return None


@settings(max_examples=examples(250) if not SECONDS else 1, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**63 - 1))
def test_a_mutated_program_is_compiled_or_refused_at_a_place(seed: int) -> None:
    _compiled(_mutated(RUNNABLE, random.Random(seed)))


def test_the_program_whose_mutants_are_compiled_runs() -> None:
    executable = _compiled(RUNNABLE)
    assert executable is not None
    results = executable(np.eye(4, dtype=np.float32), np.array([0, 1], np.int32), np.array(True))
    assert [result.shape for result in results] == [(4, 4), (3,)]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_snippets_are_read_whole(snippet: str) -> None:
    """Mutations start from texts that the parser understands, or they would say little."""
    parse(snippet)


@given(st.binary(max_size=300))
@settings(max_examples=examples(200))
def test_bytes_of_any_kind_are_refused_at_a_place(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    if not re.sub(r"//[^\n\udc80-\udcff]*|[ \t\r\n]+", "", text):
        assert spmd.parse(data).functions == []
        return
    with pytest.raises(spmd.SpmdError) as caught:
        spmd.parse(data)
    assert all(diagnostic.location.line >= 1 for diagnostic in caught.value.diagnostics)
