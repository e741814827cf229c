"""Ops of a program that a frontend hands over name their lines in Python, which are looked up when they are named."""

import numpy as np
import pytest

import spmd
from spmd.artifacts.page import FilePage

TEXT = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %x : tensor<4xf32> loc("jit(f)/sin"(callsite("inner"("/usr/lib/site-packages/jax/x.py":7:4)
    at callsite("f"("/home/me/train.py":12:8 to :17) at "<module>"("/home/me/train.py":30:0)))))
  %1 = stablehlo.negate %0 : tensor<4xf32> loc("jit(f)/neg")
  return %1 : tensor<4xf32>
}"""
DATA = spmd.serialize(spmd.parse(TEXT))


def test_the_users_innermost_line_is_named() -> None:
    sine, negate, _ = spmd.parse(DATA, name="<jax>").functions[0].body.ops
    assert str(sine.location) == "/home/me/train.py:12" and sine.location.column == 9
    assert str(negate.location).startswith("<jax>: byte ")
    assert ": byte " in str(spmd.parse(DATA, name="step.mlirbc").functions[0].body.ops[0].location)


def test_nothing_is_looked_up_where_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = spmd.parse(DATA, name="<jax>")
    monkeypatch.setattr(FilePage, "location_text", None)
    spmd.verify(module)
    assert [op.location.offset > 0 for op in module.functions[0].body.ops] == [True] * 3
    monkeypatch.undo()
    (result,) = spmd.compile(module)(np.zeros(4, np.float32))
    assert result.tolist() == [0.0] * 4
