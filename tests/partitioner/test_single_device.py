"""What a program gives to a single device is computed there alone, and all devices have its results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import partitioner
import spmd
from spmd.backends.custom_calls import register_custom_call
from tests.partitioner.running import collective_kinds, run_parts

_MESHES = """
sdy.mesh @mesh = <["x"=2, "y"=2]>
sdy.mesh @one = <[], device_ids=[1]>
sdy.mesh @two = <[], device_ids=[2]>
sdy.mesh @nine = <[], device_ids=[9]>
"""
_CALLS: list[list[float]] = []


@pytest.fixture(autouse=True)
def no_calls() -> Iterator[None]:
    _CALLS.clear()
    yield


def _count(array: Any, *, attributes: Any) -> Any:
    """Notes a call, and adds to the array how many there have been."""
    _CALLS.append(np.asarray(array).tolist())
    return array + np.float32(len(_CALLS))


register_custom_call("tests.single_device.count", _count)


def _call(operand: str, attributes: str = "has_side_effect = true") -> str:
    call = f"stablehlo.custom_call @tests.single_device.count({operand}) {{{attributes}}}"
    return f"{call} : (tensor<4xf32>) -> tensor<4xf32>"


def _program(body: str, *, inside: str = "", result: str = "") -> str:
    return f"""{_MESHES}
    func.func @main(%a: tensor<4xf32> {{{inside}}}) -> (tensor<4xf32>{result}) {{
      {body}
      return %r : tensor<4xf32>
    }}"""


def _refused(text: str, match: str) -> None:
    with pytest.raises(spmd.CompileError, match=match):
        partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4))


_X = np.array([1, -0.0, np.nan, 4], np.float32)
_ON_ONE = "{sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>}"
_CUT = 'sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>'


@pytest.mark.parametrize(
    "where",
    ["sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>", 'mhlo.sharding = "{maximal device=1}"'],
    ids=["sdy", "gspmd"],
)
@pytest.mark.parametrize("inside", ["", _CUT], ids=["whole", "cut"])
def test_a_call_is_made_once_and_all_have_what_it_gave(where: str, inside: str) -> None:
    for effect in ("", "has_side_effect = true, "):
        _CALLS.clear()
        (result,) = run_parts(_program(f"%r = {_call('%a', effect + where)}", inside=inside), [_X], 4)
        np.testing.assert_array_equal(result, _X + 1)
        assert len(_CALLS) == 1


def test_results_travel_bit_by_bit() -> None:
    parts = partitioner.partition(spmd.parse(_program(f"%r = stablehlo.abs %a {_ON_ONE} : tensor<4xf32>")), None)
    for own in spmd.run_parallel(parts.module, spmd.ProcessGrid(1, 4), [[-_X]] * 4, timeout=30):
        assert own[0].tobytes() == np.abs(_X).tobytes()


def test_sums_of_two_devices_are_known_to_all() -> None:
    body = f"""%s = stablehlo.add %a, %a {_ON_ONE} : tensor<4xf32>
      %r = stablehlo.multiply %s, %a {_ON_ONE.replace("one", "two")} : tensor<4xf32>"""
    (result,) = run_parts(_program(body, inside=_CUT), [np.arange(4, dtype=np.float32)], 4)
    np.testing.assert_array_equal(result, [0, 2, 8, 18])
    assert collective_kinds(_program(body), 4) == ["collective_broadcast"] * 2


def test_a_switch_on_the_device_s_own_id_is_taken_there() -> None:
    """In an op of a single device an id is that device's; branches and what they hold run there alone."""
    body = f"""%id = stablehlo.partition_id {_ON_ONE} : tensor<ui32>
      %index = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
      %r = "stablehlo.case"(%index) ({{
        stablehlo.return %a : tensor<4xf32>
      }}, {{
        %call = {_call("%a")}
        stablehlo.return %call : tensor<4xf32>
      }}, {{
        %n = stablehlo.negate %a : tensor<4xf32>
        stablehlo.return %n : tensor<4xf32>
      }}) {_ON_ONE.replace("one", "two")} : (tensor<i32>) -> tensor<4xf32>"""
    (result,) = run_parts(_program(body, inside=_CUT), [_X], 4)
    np.testing.assert_array_equal(result, _X + 1)
    assert len(_CALLS) == 1


def test_what_is_computed_from_ids_is_of_the_device_that_reads_it() -> None:
    """As Shardy's single_device_switch: what follows from the id has no device of its own, and two read it."""
    body = f"""%id = stablehlo.partition_id : tensor<ui32>
      %f = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>
      %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %ten = stablehlo.constant dense<10.0> : tensor<4xf32>
      %b10 = stablehlo.multiply %b, %ten : tensor<4xf32>
      %s = stablehlo.add %a, %b {_ON_ONE.replace("one", "two")} : tensor<4xf32>
      %r = stablehlo.add %s, %b10 {_ON_ONE} : tensor<4xf32>"""
    (result,) = run_parts(_program(body, inside=_CUT), [np.arange(4, dtype=np.float32)], 4)
    np.testing.assert_array_equal(result, [12, 13, 14, 15])


def test_an_argument_of_a_single_device_is_what_that_device_was_given() -> None:
    for where in ("sdy.sharding = #sdy.sharding<@two, []>", 'mhlo.sharding = "{maximal device=2}"'):
        text = _program("%r = stablehlo.add %a, %a : tensor<4xf32>", inside=where)
        parts = partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4))
        inputs = [[np.full(4, rank, np.float32)] for rank in range(4)]
        for own in spmd.run_parallel(parts.module, spmd.ProcessGrid(1, 4), inputs, timeout=30):
            np.testing.assert_array_equal(own[0], [4] * 4)


def test_calls_with_effects_of_no_device_are_made_once() -> None:
    loop = f"""%zero = stablehlo.constant dense<0> : tensor<i32>
      %loop:2 = stablehlo.while(%i = %zero, %v = %a) : tensor<i32>, tensor<4xf32> cond {{
        %three = stablehlo.constant dense<3> : tensor<i32>
        %p = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        %w = {_call("%v")}
        stablehlo.return %next, %w : tensor<i32>, tensor<4xf32>
      }}
      %r = stablehlo.add %loop#1, %loop#1 : tensor<4xf32>"""
    (result,) = run_parts(_program(loop, inside=_CUT), [np.zeros(4, np.float32)], 4)
    np.testing.assert_array_equal(result, [12] * 4)
    assert len(_CALLS) == 3


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (f"%r = stablehlo.abs %a {_ON_ONE.replace('one', 'nine')} : tensor<4xf32>", "must be less than 4, got 9"),
        (
            "%s:2 = stablehlo.optimization_barrier {sdy.sharding = #sdy.sharding_per_value<[<@one, []>, <@two, []>]>}"
            " %a, %a : tensor<4xf32>, tensor<4xf32>\n%r = stablehlo.add %s#0, %s#1 : tensor<4xf32>",
            "on one device, got devices 1 and 2",
        ),
        (
            "%s:2 = stablehlo.optimization_barrier "
            '{mhlo.sharding = "{{maximal device=1}, {devices=[4]<=[4]}}"}'
            " %a, %a : tensor<4xf32>, tensor<4xf32>\n%r = stablehlo.add %s#0, %s#1 : tensor<4xf32>",
            "on device 1 alone",
        ),
        (
            "%id = stablehlo.partition_id : tensor<ui32>\n%f = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>\n"
            "%b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
            "%r = stablehlo.add %a, %b : tensor<4xf32>",
            r'partition_id: must be in code that is manual .* "x", "y" are not manual',
        ),
    ],
)
def test_what_has_no_meaning_is_refused(body: str, match: str) -> None:
    _refused(_program(body, inside=_CUT), match)


def test_an_id_is_the_process_s_own_in_manual_code_alone() -> None:
    def text(axes: str, rest: str) -> str:
        return _program(
            f"""%r = sdy.manual_computation(%a)
              in_shardings=[<@mesh, [{{{axes}}}]>] out_shardings=[<@mesh, [{{{axes}}}]>]
              manual_axes={{{axes}}} (%b: tensor<{rest}xf32>) {{
                %id = stablehlo.partition_id : tensor<ui32>
                %f = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>
                %w = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<{rest}xf32>
                sdy.return %w : tensor<{rest}xf32>
              }} : (tensor<4xf32>) -> tensor<4xf32>"""
        )

    (result,) = run_parts(text('"x", "y"', "1"), [_X], 4)
    np.testing.assert_array_equal(result, [0, 1, 2, 3])
    _refused(text('"x"', "2"), r'here "y" are not manual|"y"')
