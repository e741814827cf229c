"""Layouts that are known: data parallelism, Megatron's, fully sharded parameters, experts, all found by themselves.

Several layouts may take the same time: what is found is as fast as the known one, and talks no more. Source: the closed
forms of Alpa's tests (arXiv 2201.12023) and of Megatron-LM (arXiv 1909.08053).
"""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sharding_search.programs import forward, kinds, priced, searched, shape, traced, train

COLUMN, ROW, WHOLE = ((), ("x",)), (("x",), ()), ((), ())
#: What takes the same time is taken for equal to this part.
EQUAL = 1.001


def test_many_rows_are_data_parallel_with_an_all_reduce_a_gradient() -> None:
    weights = [shape(256, 256)] * 4
    module, plan = searched(traced(train, weights, shape(1 << 14, 256), shape(1 << 14, 256)), {"x": 8})
    assert [each.spec for each in plan.arguments] == [WHOLE] * 4 + [ROW] * 2
    assert plan.results == (WHOLE,) * 4
    assert kinds(module) == Counter(all_reduce=4)


@pytest.mark.parametrize("layers", (2, 4))
def test_few_rows_have_kernels_by_columns_and_by_rows_in_turns(layers: int) -> None:
    """Every second layer ends in an all_reduce, or its like; a step of training, L - 1 of them."""
    program = traced(forward, [shape(4096, 4096)] * layers, shape(64, 4096))
    module, plan = searched(program, {"x": 4})
    known = priced(program, {"x": 4}, [*[COLUMN, ROW] * (layers // 2), WHOLE])
    assert plan.seconds <= EQUAL * known.seconds
    assert kinds(module).total() <= layers
    assert all(each.spec != WHOLE for each in plan.arguments[:-1])


def test_a_step_of_few_rows_has_an_all_reduce_or_both_halves_of_one() -> None:
    program = traced(train, [shape(4096, 4096)] * 2, shape(64, 4096), shape(64, 4096))
    module, plan = searched(program, {"x": 4})
    known = priced(program, {"x": 4}, [COLUMN, ROW, WHOLE, WHOLE])
    assert plan.seconds <= EQUAL * known.seconds
    assert kinds(module) in (Counter(all_reduce=1), Counter(all_gather=1, reduce_scatter=1))


def test_experts_are_apart() -> None:
    """A process has its experts, and tokens go to them and back: no all_gather of tokens or kernels."""

    def experts(tokens: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        grouped = tokens.reshape(8, 8, 64, 512).transpose(1, 0, 2, 3)
        hidden = jax.nn.relu(jnp.einsum("egcd,edh->egch", grouped, up))
        return jnp.einsum("egch,ehd->egcd", hidden, down).transpose(1, 0, 2, 3).reshape(-1, 512)

    program = traced(experts, shape(4096, 512), shape(8, 512, 4096), shape(8, 4096, 512))
    first = (("x",), (), ())
    module, plan = searched(program, {"x": 8})
    assert [each.spec for each in plan.arguments[1:]] == [first, first]
    assert plan.seconds <= EQUAL * priced(program, {"x": 8}, [ROW, first, first]).seconds
    assert set(kinds(module)) <= {"all_to_all"}


def test_attention_is_no_slower_than_by_heads() -> None:
    def attention(x: jax.Array, query: jax.Array, key: jax.Array, value: jax.Array, out: jax.Array) -> jax.Array:
        q, k, v = (jnp.einsum("bsd,dhe->bshe", x, weight) for weight in (query, key, value))
        weights = jax.nn.softmax(jnp.einsum("bqhe,bkhe->bhqk", q, k))
        return jnp.einsum("bhqk,bkhe,hed->bqd", weights, v, out)

    head, by_heads = shape(1024, 16, 64), ((), ("x",), ())
    program = traced(attention, shape(1, 256, 1024), head, head, head, shape(16, 64, 1024))
    _, plan = searched(program, {"x": 4})
    assert [each.spec for each in plan.arguments[1:4]] == [by_heads] * 3
    known = priced(program, {"x": 4}, [((), (), ()), *[by_heads] * 3, (("x",), (), ())])
    assert plan.seconds <= EQUAL * known.seconds


def test_a_vocabulary_is_cut_by_words_where_it_is_what_is_large() -> None:
    def embedded(table: jax.Array, tokens: jax.Array, out: jax.Array) -> jax.Array:
        return jnp.tanh(table[tokens]) @ out

    module = traced(embedded, shape(65536, 1024), shape(16, dtype=np.int32), shape(1024, 65536))
    _, plan = searched(module, {"x": 8})
    assert plan.arguments[2].spec == COLUMN
