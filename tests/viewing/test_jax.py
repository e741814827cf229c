"""`view` of functions that `spmd.jax.jit` makes."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")

import spmd.jax  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402


def test_a_function_of_one_process_and_one_of_the_whole_mesh_are_shown() -> None:
    form = jax.ShapeDtypeStruct((8, 4), "float32")
    summed = spmd.jax.jit(lambda x: jax.lax.psum(x, "data"), axes={"data": 4}).view(form).documents[0]
    assert summed["grid"]["size"] == 4 and [each["kind"] for each in summed["collectives"]] == ["all_reduce"]
    mesh = abstract_mesh((2, 2), ("x", "y"))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", "y"))

    def total(x: jax.Array) -> jax.Array:
        with jax.named_scope("totals"):
            return x.sum()

    whole = spmd.jax.jit(jax.jit(total, in_shardings=spec)).view(form).documents[0]
    texts = whole["texts"]
    assert whole["grid"]["size"] == 4 and whole["collectives"]
    assert "totals" in {texts[name] for name, _ in whole["scopes"]}
    assert any(file.endswith("test_jax.py") for file in whole["sources"])


def test_arguments_have_the_names_of_the_function_whole_and_in_blocks() -> None:
    form = jax.ShapeDtypeStruct((8, 4), "float32")
    spec = jax.sharding.NamedSharding(abstract_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))

    def step(state: dict[str, list[jax.Array]]) -> jax.Array:
        return state["w"][0] + state["w"][1]

    names = ["state['w'][0]", "state['w'][1]"]
    for function in (step, jax.jit(step, in_shardings=spec)):
        found = spmd.jax.jit(function).view({"w": [form, form]}).documents[0]
        assert [found["texts"][value[0]] for value in found["values"] if value[7] >= 0] == names
    text = jax.jit(step).lower({"w": [form, form]}).compile().as_text()
    found = spmd.view(spmd.parse(text, "step.hlo")).documents[0]
    assert [found["texts"][value[0]] for value in found["values"] if value[7] >= 0] == names


def test_the_ops_of_functions_stand_where_they_are_called_in_a_partitioned_program_too() -> None:
    form = jax.ShapeDtypeStruct((8, 4), "float32")
    spec = jax.sharding.NamedSharding(abstract_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))

    def step(x: jax.Array) -> jax.Array:
        with jax.named_scope("first"):
            x = jax.numpy.where(x > 0, x, 1.0)
        with jax.named_scope("second"):
            return jax.numpy.where(x > 2, x, 3.0)

    data = spmd.jax.jit(jax.jit(step, in_shardings=spec)).view(form).documents[0]
    paths = {"/".join(reversed(_path(data, op[3]))) for op in data["ops"] if data["texts"][op[0]] == "select"}
    assert paths == {"jit(step)/first/@_where", "jit(step)/second/@_where"}


def _path(data: dict[str, Any], scope: int) -> list[str]:
    return [] if scope <= 0 else [data["texts"][data["scopes"][scope][0]], *_path(data, data["scopes"][scope][1])]
