"""JAX functions of one process with a mistake of communication, and the same put right.

Each is a builder: called with True it gives the faulty function, with False the right one. The line of the mistake
ends in `# fault`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Build = Callable[[bool], Callable[..., Any]]
#: A vector, a batch, a square matrix, a key, a flag, a number.
V, X, M = np.ones(3, np.float32), np.ones((8, 3), np.float32), np.ones((3, 3), np.float32)
KEY, YES, N = np.zeros(2, np.uint32), np.bool_(True), np.int32(3)
STATE = {"w": V, "m": V, "step": N}


@dataclass(frozen=True)
class Mistake:
    """`certain`: an error; else a warning. `text` is in its message."""

    build: Build
    arguments: tuple[Any, ...]
    certain: bool
    text: str
    axes: dict[str, int] = field(default_factory=lambda: {"data": 4})
    declared: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> int:
        lines, first = inspect.getsourcelines(self.build)
        return first + next(at for at, line in enumerate(lines) if line.rstrip().endswith("# fault"))


MISTAKES: list[Mistake] = []


def mistake(
    *arguments: Any, error: str = "", warning: str = "", axes: dict[str, int] | None = None, **declared: Any
) -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        MISTAKES.append(Mistake(build, arguments, bool(error), error or warning, axes or {"data": 4}, declared))
        return build

    return add


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.mean((x @ w - 1) ** 2)


def mean(tree: Any, axis: str = "data") -> Any:
    return lax.pmean(tree, axis)


# --- branches and loops ---


@mistake(X, error="process 0 waits here for process 1")
def only_the_first_process_reduces(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        first = lax.axis_index("data") == 0
        if not wrong:
            total = lax.psum(x, "data")
            return jnp.where(first, total, x)
        return lax.cond(first, lambda y: lax.psum(y, "data"), lambda y: y, x)  # fault

    return step


@mistake(V, X, warning="argument 1 (x)", replicated=0)
def a_bad_gradient_is_skipped_where_it_is_bad(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        g = jax.grad(loss)(w, x)
        ok = jnp.isfinite(g).all()
        if not wrong:
            ok = lax.pmin(ok.astype(jnp.int32), "data") > 0
        return lax.cond(ok, lambda: w - lax.pmean(g, "data"), lambda: w)  # fault

    return step


@mistake(X, N, warning="argument 1 (n)")
def steps_by_an_argument(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array, n: jax.Array) -> jax.Array:
        n = n if wrong else lax.pmax(n, "data")
        ring = [(i, (i + 1) % 4) for i in range(4)]
        return lax.fori_loop(0, n, lambda _, y: lax.ppermute(y, "data", ring), x)  # fault

    return step


@mistake(X, error="differs between processes")
def as_many_steps_as_the_process_has_neighbours(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        n = lax.axis_index("data") if wrong else 3
        return lax.fori_loop(0, n, lambda _, y: lax.pmax(y, "data"), x)  # fault

    return step


@mistake(V, X, warning="argument 1 (x)", replicated=0)
def a_line_search_by_the_local_loss(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        def value(rate: jax.Array) -> jax.Array:
            own = loss(w - rate, x)
            return own if wrong else mean(own)

        def halve(rate: jax.Array) -> jax.Array:
            return rate / 2 * lax.pmax(jnp.float32(1), "data") + 0 * lax.pmean(loss(w, x), "data")  # fault

        return lax.while_loop(lambda rate: value(rate) > 0.1, halve, jnp.float32(1))

    return step


@mistake(X, error="which takes another branch")
def ends_of_a_switch_disagree(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        stage = lax.axis_index("data") // 2 if wrong else 0
        total = [lambda y: lax.psum(y, "data"), lambda y: lax.pmax(y, "data")]  # fault
        return lax.switch(stage, total, x)

    return step


@mistake(X, error="waits here", axes={"data": 2, "model": 2})
def a_branch_by_the_model_axis_reduces_over_it(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        first = lax.axis_index("model") == 0
        over = "model" if wrong else "data"
        return lax.cond(first, lambda y: lax.psum(y, over), lambda y: y, x)  # fault

    return step


@mistake(X, YES, warning="argument 1 (train)")
def statistics_only_when_training(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array, train: jax.Array) -> jax.Array:
        if not wrong:
            train = lax.pmax(train.astype(jnp.int32), "data") == 1
        return lax.cond(train, lambda: lax.pmean(x.mean(0), "data"), lambda: x.mean(0) * 0)  # fault

    return step


@mistake(X, error="all_gather")
def an_all_gather_inside_of_a_scan_with_a_branch(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        def body(y: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            turn = i == lax.axis_index("data") if wrong else i == 0
            z = lax.cond(turn, lambda: lax.all_gather(y, "data").mean(0), lambda: y)  # fault
            return z, None

        return lax.scan(body, x, jnp.arange(4))[0]

    return step


@mistake(X, error="waits here")
def processes_leave_a_retry_by_their_number(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        me = lax.axis_index("data")

        def body(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            i, y = carry
            return lax.cond(
                (me if wrong else i) > 1,
                lambda: (i + 1, lax.pmax(y, "data")),  # fault
                lambda: (i + 1, y),
            )

        return lax.while_loop(lambda carry: carry[0] < 3, body, (jnp.int32(0), x))[1]

    return step


# --- sums ---


@mistake(V, X, warning="it is counted 4 times", replicated=0)
def a_mean_gradient_is_summed(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        g = mean(jax.grad(loss)(w, x))
        return w - (lax.psum(g, "data") if wrong else g)  # fault

    return step


@mistake(V, X, warning="it is counted 4 times", replicated=0)
def weight_decay_inside_of_the_sum(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        g = jax.grad(loss)(w, x)
        if wrong:
            return w - lax.psum(g + 0.01 * w, "data")  # fault
        return w - (lax.psum(g, "data") + 0.01 * w)

    return step


@mistake(M, M, V, warning="argument 2 (b)", replicated=(0, 2))
def a_bias_before_the_sum_of_a_row_parallel_layer(wrong: bool) -> Callable[..., Any]:
    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        if wrong:
            return lax.psum(x @ w + b, "data")  # fault
        return lax.psum(x @ w, "data") + b

    return layer


@mistake(M, M, V, warning="it is counted 4 times", replicated=(0, 2))
def a_share_of_a_bias(wrong: bool) -> Callable[..., Any]:
    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return lax.psum(x @ w + b / (2 if wrong else 4), "data")  # fault

    return layer


@mistake(V, X, warning="it is counted 4 times", replicated=True)
def a_loss_of_one_batch_for_all(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        value = loss(w, x)
        return lax.psum(value, "data") if wrong else mean(value)  # fault

    return step


@mistake(X, warning="it is counted 4 times")
def a_norm_of_a_reduced_gradient(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        g = mean(x) if wrong else x
        return jnp.sqrt(lax.psum((g**2).sum(), "data"))  # fault

    return step


@mistake(X, warning="it is counted 2 times", axes={"data": 2, "model": 2})
def a_sum_over_both_axes_of_what_one_has_summed(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        total = lax.psum(x.sum(0), "model")
        return lax.psum(total, "model" if wrong else "data")  # fault

    return step


@mistake(X, warning="it is counted 4 times")
def a_scattered_sum_of_a_gathered_array(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        whole = lax.all_gather(x, "data", tiled=True)
        if wrong:
            return lax.psum_scatter(whole, "data", tiled=True)  # fault
        return lax.dynamic_slice_in_dim(whole, lax.axis_index("data") * 8, 8)

    return step


@mistake(X, N, warning="it is counted 4 times", replicated=1)
def a_count_that_everybody_has(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array, n: jax.Array) -> jax.Array:
        count = lax.psum(n, "data") if wrong else lax.psum(1, "data") * n  # fault
        return lax.psum(x.sum(), "data") / count

    return step


# --- results that are held for the same ---


@mistake(V, X, error="it is a partial sum", replicated=0, replicated_results=0)
def the_forgotten_mean(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        g = jax.grad(loss)(w, x)
        return w - 0.1 * (g if wrong else mean(g))  # fault

    return step


@mistake(STATE, X, error="state['m']", replicated=0, replicated_results=True)
def momentum_of_the_local_gradient(wrong: bool) -> Callable[..., Any]:
    def step(state: dict[str, Any], x: jax.Array) -> dict[str, Any]:
        g = jax.grad(loss)(state["w"], x)
        m = 0.9 * state["m"] + (g if wrong else mean(g))  # fault
        return {"w": state["w"] - 0.1 * mean(m), "m": m, "step": state["step"] + 1}

    return step


@mistake(STATE, X, error="must be the same", replicated=0, donate_argnums=0)
def donated_state_is_the_next_step_s(wrong: bool) -> Callable[..., Any]:
    def step(state: dict[str, Any], x: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        value, g = jax.value_and_grad(loss)(state["w"], x)
        g = g if wrong else mean(g)
        m = 0.9 * mean(state["m"])
        return {"w": state["w"] - g, "m": m, "step": state["step"] + 1}, value  # fault

    return step


@mistake(V, V, X, error="argument 2 (x)", replicated=(0, 1), replicated_results=True)
def running_statistics_of_a_normalization(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, running: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        batch = mean(x.mean(0))
        g = mean(jax.grad(lambda w: loss(w, x - batch))(w))
        kept = x.mean(0) if wrong else batch
        return w - g, 0.9 * running + 0.1 * kept  # fault

    return step


@mistake(V, X, error="result 1 must be the same on all processes", replicated=0, replicated_results=True)
def a_logged_loss_of_one_process(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, g = jax.value_and_grad(loss)(w, x)
        return w - mean(g), -value if wrong else -mean(value)  # fault

    return step


@mistake(V, X, error="must be the same", replicated=0, replicated_results=0)
def accumulated_gradients_reduced_too_early(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        first, second = jax.grad(loss)(w, x[:4]), jax.grad(loss)(w, x[4:])
        g = mean(first) + second if wrong else mean(first + second)
        return w - g  # fault

    return step


@mistake(V, X, error="must be the same", replicated=0, replicated_results=0, axes={"data": 2, "model": 2})
def a_mean_over_one_of_two_axes(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        g = jax.grad(loss)(w, x)
        return w - lax.pmean(g, "data" if wrong else ("data", "model"))  # fault

    return step


@mistake(np.ones(12, np.float32), np.ones(12, np.float32), error="must be the same", replicated=0, replicated_results=0)
def a_sharded_optimizer_that_gathers_nothing(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, g: jax.Array) -> jax.Array:
        at = lax.axis_index("data") * 3
        new = lax.dynamic_slice_in_dim(w, at, 3) - lax.psum_scatter(g, "data", tiled=True)
        if wrong:
            return lax.dynamic_update_slice_in_dim(w, new, at, 0)  # fault
        return lax.all_gather(new, "data", tiled=True)

    return step


@mistake(KEY, V, error="must be the same", replicated=(0, 1), replicated_results=0)
def a_key_with_the_process_in_it_is_carried_on(wrong: bool) -> Callable[..., Any]:
    def step(key: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        own = jax.random.fold_in(key, lax.axis_index("data"))
        noise = mean(jax.random.normal(own, w.shape))
        return jax.random.split(own if wrong else key)[0], w + noise  # fault

    return step


@mistake(V, X, error="must be the same", replicated=0, replicated_results=0)
def steps_in_a_scan_without_a_mean(wrong: bool) -> Callable[..., Any]:
    def train(w: jax.Array, x: jax.Array) -> jax.Array:
        def body(w: jax.Array, rows: jax.Array) -> tuple[jax.Array, None]:
            g = jax.grad(loss)(w, rows)
            return w - (g if wrong else mean(g)), None

        return lax.scan(body, w, x.reshape(4, 2, 3))[0]  # fault

    return train


@mistake(M, M, M, error="it is a partial sum", replicated=0, replicated_results=0)
def a_tensor_parallel_layer_without_its_sum(wrong: bool) -> Callable[..., Any]:
    def layer(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        y = jax.nn.relu(x @ up) @ down  # fault
        return y if wrong else lax.psum(y, "data")

    return layer


@mistake(V, X, error="must be the same", replicated=0, replicated_results=0)
def an_average_of_the_weights_that_left_one_out(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        own = w - jax.grad(loss)(w, x)
        groups = [[0, 1, 2], [3]] if wrong else [[0, 1, 2, 3]]
        return lax.psum(own, "data", axis_index_groups=groups) / 4  # fault

    return step


@mistake(V, X, warning="must be the same", replicated=0, replicated_results=0)
def a_neighbour_s_average_is_no_average(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        own = w - jax.grad(loss)(w, x)
        left = lax.ppermute(own, "data", [(i, (i + 1) % 4) for i in range(4)])
        return (own + left) / 2 if wrong else mean(own)  # fault

    return step


@mistake(V, X, error="must be the same", replicated=0, replicated_results=0)
def a_clipped_gradient_by_its_own_norm(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        own = jax.grad(loss)(w, x)
        g = mean(own)
        norm = jnp.sqrt(((own if wrong else g) ** 2).sum())
        return w - g / jnp.maximum(norm, 1)  # fault

    return step


@mistake(X, error="must be the same", replicated_results=0)
def the_best_of_each_process(wrong: bool) -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        best = x.max()
        return best * 2 if wrong else lax.pmax(best, "data") * 2  # fault

    return step


@mistake(V, X, error="argument 0 (w)", replicated=0, replicated_results=0)
def an_exponential_average_of_what_differs(wrong: bool) -> Callable[..., Any]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        stopped = lax.stop_gradient(x.mean(0) if wrong else mean(x.mean(0)))
        return 0.99 * w + 0.01 * stopped  # fault

    return step


# --- random numbers ---


@mistake(KEY, X, warning="the same random numbers on all processes", replicated=0)
def dropout_of_one_key(wrong: bool) -> Callable[..., Any]:
    def step(key: jax.Array, x: jax.Array) -> jax.Array:
        own = key if wrong else jax.random.fold_in(key, lax.axis_index("data"))
        return jnp.where(jax.random.bernoulli(own, 0.5, x.shape), x, 0)  # fault

    return step


@mistake(KEY, X, warning="the same random numbers", replicated=0, axes={"data": 2, "model": 2})
def dropout_by_the_wrong_axis(wrong: bool) -> Callable[..., Any]:
    def step(key: jax.Array, x: jax.Array) -> jax.Array:
        axes = "model" if wrong else ("data", "model")
        own = jax.random.fold_in(key, lax.axis_index(axes))
        return jnp.where(jax.random.bernoulli(own, 0.9, x.shape), x / 0.9, 0)  # fault

    return step


@mistake(KEY, M, M, warning="random numbers that differ between processes", replicated=(0, 1))
def masks_that_differ_after_a_tensor_parallel_sum(wrong: bool) -> Callable[..., Any]:
    def layer(key: jax.Array, x: jax.Array, w: jax.Array) -> jax.Array:
        y = lax.psum(x @ w, "data")
        own = jax.random.fold_in(key, lax.axis_index("data")) if wrong else key
        return jnp.where(jax.random.bernoulli(own, 0.5, y.shape), y, 0)  # fault

    return layer


@mistake(KEY, X, warning="the same random numbers", replicated=0)
def noise_for_privacy_of_one_key(wrong: bool) -> Callable[..., Any]:
    def step(key: jax.Array, x: jax.Array) -> jax.Array:
        own = key if wrong else jax.random.fold_in(key, lax.axis_index("data"))
        return x + jax.random.normal(own, x.shape)  # fault

    return step


@mistake(KEY, error="must be the same", replicated=0, replicated_results=0)
def weights_drawn_of_a_key_by_process(wrong: bool) -> Callable[..., Any]:
    def initial(key: jax.Array) -> jax.Array:
        own = jax.random.fold_in(key, lax.axis_index("data")) if wrong else key
        return jax.random.normal(own, (3,)) * 0.02  # fault

    return initial
