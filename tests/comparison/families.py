"""Programs, single faults in each, and what means the same: sources of JAX functions and replacements in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """A function of arrays: its source, and replacements in it that are faults, or that mean the same.

    `arguments` are names with shapes, as in "x: 8 16", of normal floats times `scale` plus `offset`; those that are
    named i, j or n are integers below `below`. Replacements are lines "old -> new", several of them joined by "&&".
    """

    arguments: str
    body: str
    faults: str
    same: str
    scale: float = 1.0
    offset: float = 0.0
    below: int = 8
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16", "float64")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arguments, by name."""
        pairs = (argument.split(":") for argument in self.arguments.split(","))
        return {name.strip(): tuple(map(int, shape.split())) for name, shape in pairs}

    def replaced(self, replacement: str = "") -> str:
        """Return the source with each old part, which occurs once, replaced by the new one."""
        body = self.body
        for part in filter(None, replacement.split(" && ")):
            old, new = (each.strip() for each in part.split(" -> "))
            if body.count(old) != 1:
                raise ValueError(f"{old!r} occurs {body.count(old)} times in {body}")
            body = body.replace(old, new)
        return body


def lines(text: str) -> list[str]:
    """Return the lines of a text that are not empty, without the blanks around them."""
    return [line.strip() for line in text.splitlines() if line.strip()]


FAMILIES = {
    "softmax": Family(
        "x: 8 16",
        """
        seen = jnp.arange(16) < jnp.arange(8)[:, None] + 8
        s = x * 0.35 + jnp.where(seen, 0.0, -1e9)
        e = jnp.exp(s - jnp.max(s, axis=-1, keepdims=True))
        return e / jnp.sum(e, axis=-1, keepdims=True)
        """,
        """
        0.35 -> 0.350001
        0.35 -> -0.35
        x * 0.35 -> x
        ] + 8 -> ] + 7
        x * 0.35 + -> x * 0.35 -
        < jnp.arange -> <= jnp.arange
        sum(e, axis=-1 -> sum(e, axis=0
        -1e9 -> -1e0
        """,
        """
        e / jnp.sum(e, axis=-1, keepdims=True) -> e * (1.0 / jnp.sum(e, axis=-1, keepdims=True))
        s - jnp.max(s, axis=-1, keepdims=True) -> s
        return e / jnp.sum(e, axis=-1, keepdims=True) -> return jnp.exp(s - jax.nn.logsumexp(s, axis=-1, keepdims=True))
        jnp.exp(s - jnp.max(s, axis=-1, keepdims=True)) -> \
            jnp.exp2(1.4426950408889634 * (s - jnp.max(s, axis=-1, keepdims=True)))
        x * 0.35 + jnp.where(seen, 0.0, -1e9) -> jnp.where(seen, x * 0.35, x * 0.35 - 1e9)
        """,
    ),
    "attention": Family(
        "q: 2 8 16, k: 2 8 16, v: 2 8 16",
        """
        mask = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), 0.0, -1e9)
        s = jnp.einsum("hqd,hkd->hqk", q, k) * 0.25 + mask
        p = jax.nn.softmax(s, axis=-1)
        return jnp.einsum("hqk,hkd->hqd", p, v)
        """,
        """
        0.25 -> 0.2500003
        * 0.25 -> * 1.0
        tril -> triu
        hqk,hkd->hqd -> hkq,hkd->hqd
        axis=-1 -> axis=-2
        q, k) -> k, q)
        0.25 + mask -> 0.25
        bool)), -> bool), -1),
        p, v) -> p, v * 1.00001)
        """,
        """
        jnp.einsum("hqd,hkd->hqk", q, k) * 0.25 -> jnp.einsum("hqd,hkd->hqk", q * 0.25, k)
        jnp.einsum("hqd,hkd->hqk", q, k) -> jnp.sum(q[:, :, None] * k[:, None], -1)
        return jnp.einsum("hqk,hkd->hqd", p, v) -> return jnp.matmul(p, v)
        jax.nn.softmax(s, axis=-1) -> jnp.exp(s) / jnp.sum(jnp.exp(s), -1, keepdims=True)
        return jnp.einsum("hqk,hkd->hqd", p, v) -> \
            e = jnp.exp(s); return jnp.matmul(e, v) / jnp.sum(e, -1, keepdims=True)
        -1e9 -> -jnp.inf
        """,
    ),
    "layernorm": Family(
        "x: 6 64, g: 64, b: 64",
        """
        m = jnp.mean(x, -1, keepdims=True)
        v = jnp.mean((x - m) ** 2, -1, keepdims=True)
        return (x - m) / jnp.sqrt(v + 1e-5) * g + b
        """,
        """
        1e-5 -> 1.1e-5
        1e-5 -> 1e-6
        + 1e-5 -> - 1e-5
        * g + b -> * g
        * g + b -> * b + g
        (x - m) ** 2, -> (x) ** 2,
        (x - m) / -> x /
        jnp.mean((x - m) ** 2, -1, keepdims=True) -> jnp.sum((x - m) ** 2, -1, keepdims=True) / 63
        mean(x, -1 -> mean(x, 0
        """,
        """
        jnp.mean((x - m) ** 2, -1, keepdims=True) -> jnp.mean(x * x, -1, keepdims=True) - m * m
        / jnp.sqrt(v + 1e-5) -> * jax.lax.rsqrt(v + 1e-5)
        jnp.mean(x, -1, keepdims=True) -> jnp.matmul(x, jnp.full((64, 1), 1 / 64, x.dtype))
        (x - m) / jnp.sqrt(v + 1e-5) * g + b -> x * (g / jnp.sqrt(v + 1e-5)) + (b - m * g / jnp.sqrt(v + 1e-5))
        jnp.mean(x, -1, keepdims=True) -> jnp.mean(x.reshape(6, 8, 8).mean(-1), -1, keepdims=True)
        """,
        offset=3.0,
    ),
    "rmsnorm": Family(
        "x: 6 128, g: 128",
        """
        r = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        return x * r * g
        """,
        """
        1e-6 -> 1.01e-6
        1e-6 -> 1e-5
        * g -> + g
        mean(x * x, -1 -> mean(x * x, 0
        mean(x * x -> mean(x * jnp.abs(x)
        rsqrt -> sqrt
        * r -> * r * 1.000001
        """,
        """
        x * r * g -> x * (r * g)
        jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) -> \
            1 / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        jnp.mean(x * x, -1, keepdims=True) -> jnp.einsum("ij,ij->i", x, x)[:, None] / 128
        jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) -> \
            (jnp.sum(x * x, -1, keepdims=True) / 128 + 1e-6) ** -0.5
        """,
    ),
    "gelu": Family(
        "x: 512",
        """
        y = 0.5 * x * (1 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))
        return y
        """,
        """
        0.044715 -> 0.044716
        0.7978845608 -> 0.7978855608
        0.5 * -> 0.500001 *
        x ** 3 -> x ** 2
        x + 0.044 -> x - 0.044
        jnp.tanh -> jnp.sin
        (1 + -> (1 -
        """,
        """
        x ** 3 -> x * x * x
        0.5 * x * (1 + jnp.tanh( -> x * jax.nn.sigmoid(2 * ( && 3))) -> 3)))
        0.7978845608028654 * (x + 0.044715 * x ** 3) -> x * (0.7978845608028654 + 0.7978845608028654 * 0.044715 * x * x)
        0.5 * x * (1 + -> x * (0.5 + 0.5 *
        """,
        scale=3.0,
    ),
    "erf gelu": Family(
        "x: 256",
        """
        return 0.5 * x * (1 + jax.lax.erf(x / jnp.sqrt(2.0).astype(x.dtype)))
        """,
        """
        0.5 -> 0.4999995
        sqrt(2.0) -> sqrt(2.00001)
        (1 + -> (1 -
        erf(x -> erf(-x
        erf -> tanh
        x / -> x *
        """,
        """
        0.5 * x * (1 + jax.lax.erf(x / jnp.sqrt(2.0).astype(x.dtype))) -> \
            0.5 * x * jax.lax.erfc(-x / jnp.sqrt(2.0).astype(x.dtype))
        x / jnp.sqrt(2.0).astype(x.dtype) -> x * 0.7071067811865476
        """,
        scale=2.0,
    ),
    "logsumexp": Family(
        "x: 8 100",
        """
        m = jnp.max(x, -1)
        return m + jnp.log(jnp.sum(jnp.exp(x - m[:, None]), -1))
        """,
        """
        m + -> m -
        sum(jnp -> mean(jnp
        exp(x - -> exp(x +
        log( -> log1p(
        -1)) -> -1) + 1e-5)
        m + -> m * 1.000001 +
        """,
        """
        max(x, -> mean(x,
        m + jnp.log(jnp.sum(jnp.exp(x - m[:, None]), -1)) -> jax.nn.logsumexp(x, -1)
        jnp.sum(jnp.exp(x - m[:, None]), -1) -> jnp.sum(jnp.sum(jnp.exp(x - m[:, None]).reshape(8, 10, 10), -2), -1)
        jnp.log( -> 0.6931471805599453 * jnp.log2(
        """,
        scale=2.5,  # exp of what is above the mean is a float16
    ),
    "recurrence": Family(
        "x: 16",
        """
        y = x
        for _ in range(40):
            y = jnp.tanh(0.9 * y + 0.1)
        return y
        """,
        """
        0.9 -> 0.900001
        0.1 -> 0.100001
        0.9 -> -0.9
        + 0.1 -> - 0.1
        (40) -> (39)
        tanh -> arctan
        """,
        """
        0.9 * y + 0.1 -> 0.1 + y * 0.9
        0.9 * y + 0.1 -> 0.9 * (y + 1 / 9)
        jnp.tanh(0.9 * y + 0.1) -> 2 * jax.nn.sigmoid(1.8 * y + 0.2) - 1
        return y -> return jax.lax.fori_loop(0, 40, lambda _, y: jnp.tanh(0.9 * y + 0.1), x)
        """,
    ),
    "rnn": Family(
        "x: 40 16, w: 16 16, u: 16 16",
        """
        def step(h, x):
            h = jnp.tanh(h @ w * 0.25 + x @ u * 0.25 + 0.01)
            return h, h
        h, ys = jax.lax.scan(step, jnp.zeros(16, x.dtype), x)
        return ys
        """,
        """
        + 0.01 -> + 0.010001
        h @ w * 0.25 -> h @ w * 0.250001
        x @ u -> u @ x
        h @ w -> w @ h
        h @ w -> h @ w.T
        tanh -> sin
        dtype), x) -> dtype), x, reverse=True)
        + 0.01 -> - 0.01
        """,
        """
        h @ w * 0.25 + x @ u * 0.25 -> (h @ w + x @ u) * 0.25
        h, ys = jax.lax.scan(step, jnp.zeros(16, x.dtype), x) -> \
            h, ys = jax.lax.scan(step, jnp.zeros(16, x.dtype), x, unroll=8)
        h @ w * 0.25 + x @ u * 0.25 -> jnp.concatenate([h, x]) @ jnp.concatenate([w, u]) * 0.25
        jnp.tanh -> (lambda z: 1 - 2 / (1 + jnp.exp(2 * z)))
        h @ w -> jnp.sum(h[:, None] * w, 0)
        """,
    ),
    "last state": Family(
        "x: 40 16, w: 16 16, u: 16 16",
        """
        def step(h, x):
            return jnp.tanh(h @ w * 0.3 + x @ u * 0.3 + 0.01), 0
        return jax.lax.scan(step, jnp.zeros(16, x.dtype), x)[0]
        """,
        """
        0.01 -> 0.010001
        h @ w * 0.3 -> h @ w * 0.300001
        x @ u * 0.3 -> x @ u * 0.3001
        h @ w -> w @ h
        + 0.01 -> - 0.01
        """,
        """
        h @ w * 0.3 + x @ u * 0.3 -> (h @ w + x @ u) * 0.3
        h @ w -> jnp.sum(h[:, None] * w, 0)
        jnp.tanh(h @ w * 0.3 + x @ u * 0.3 + 0.01) -> jnp.tanh(h @ (w * 0.3) + x @ (u * 0.3) + 0.01)
        """,
    ),
    "fixed matrix": Family(
        "x: 16, w: 16 16",
        """
        y = x
        for _ in range(40):
            y = jnp.tanh(w @ y * 0.4)
        return y
        """,
        """
        0.4 -> 0.400001
        w @ y -> y @ w
        tanh -> arctan
        (40) -> (41)
        """,
        """
        w @ y * 0.4 -> (w * 0.4) @ y
        w @ y * 0.4 -> w @ (y * 0.4)
        """,
    ),
    "convolution": Family(
        "x: 2 3 12, k: 4 3 5",
        """
        return jax.lax.conv_general_dilated(x, k, (1,), "VALID")
        """,
        """
        x, k, -> x, k[:, :, ::-1],
        x, k, -> x * 1.000001, k,
        x, k, -> x[:, ::-1], k,
        x, k, -> -x, k,
        x, k, -> x, k.at[0, 0, 0].multiply(1.0001),
        "VALID" -> [(1, -1)]
        """,
        """
        jax.lax.conv_general_dilated(x, k, (1,), "VALID") -> \
            sum(jnp.einsum("bci,oc->boi", x[:, :, s:s + 8], k[:, :, s]) for s in range(5))
        jax.lax.conv_general_dilated(x, k, (1,), "VALID") -> \
            jnp.einsum("bcsi,ocs->boi", jnp.stack([x[:, :, s:s + 8] for s in range(5)], 2), k)
        jax.lax.conv_general_dilated(x, k, (1,), "VALID") -> \
            jax.lax.conv_general_dilated(x.transpose(0, 2, 1), k.transpose(2, 1, 0), (1,), "VALID", \
            dimension_numbers=("NHC", "HIO", "NCH"))
        """,
    ),
    "einsum": Family(
        "a: 9 33, b: 33 17, c: 17 5",
        """
        ab = a @ b
        return ab @ c
        """,
        """
        ab @ c -> jnp.floor(ab) @ c
        ab @ c -> ab @ c[::-1]
        a @ b -> a @ b * 1.000001
        a @ b -> a @ jnp.abs(b)
        a @ b -> a[:, :32] @ b[:32]
        a @ b -> a @ b.at[3, 3].add(1e-4)
        """,
        """
        ab @ c -> a @ (b @ c)
        ab @ c -> jnp.einsum("ij,jk,kl->il", a, b, c)
        a @ b -> a[:, :16] @ b[:16] + a[:, 16:] @ b[16:]
        a @ b -> (b.T @ a.T).T
        ab @ c -> jnp.einsum("ij,jk,kl->il", a, b, c, optimize=False)
        """,
    ),
    "quantized": Family(
        "x: 8 32",
        """
        scale = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
        q = jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8)
        return q.astype(x.dtype) * scale
        """,
        """
        / 127 -> / 126
        round(x -> floor(x
        -127, 127) -> -126, 126)
        / 127 -> / 127.001
        max(jnp.abs(x), -1 -> max(x, -1
        * scale -> / scale
        round(x / scale) -> round(x / scale + 1e-2)
        """,
        """
        x / scale -> x * (1 / scale)
        x / scale -> x * (127 / jnp.max(jnp.abs(x), -1, keepdims=True))
        .astype(jnp.int8) -> .astype(jnp.int32)
        jnp.clip(jnp.round(x / scale), -127, 127) -> jnp.round(jnp.clip(x / scale, -127, 127))
        """,
        dtypes=("float32", "float64"),
    ),
    "int8 product": Family(
        "x: 8 32, w: 32 16",
        """
        sx = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
        sw = jnp.max(jnp.abs(w), 0, keepdims=True) / 127
        qx = jnp.round(x / sx).astype(jnp.int8)
        qw = jnp.round(w / sw).astype(jnp.int8)
        y = jax.lax.dot(qx, qw, preferred_element_type=jnp.int32)
        return y.astype(x.dtype) * sx * sw
        """,
        """
        -1, keepdims=True) / 127 -> -1, keepdims=True) / 126
        0, keepdims=True) / 127 -> 0, keepdims=True) / 126
        x / sx -> x / sx * 0.999
        * sx * sw -> * sx
        dot(qx, -> dot(-qx,
        w / sw -> w / sx[0]
        """,
        """
        y.astype(x.dtype) * sx * sw -> y.astype(x.dtype) * (sx * sw)
        x / sx -> x * (1 / sx)
        jax.lax.dot(qx, qw, preferred_element_type=jnp.int32) -> qx.astype(jnp.int32) @ qw.astype(jnp.int32)
        jax.lax.dot(qx, qw, preferred_element_type=jnp.int32) -> \
            jnp.round(qx.astype(x.dtype) @ qw.astype(x.dtype)).astype(jnp.int32)
        """,
        dtypes=("float32", "float64"),
    ),
    "long sum": Family(
        "x: 1000000",
        """
        return jnp.sum(x * 1.0)
        """,
        """
        * 1.0 -> * 1.000001
        sum -> mean
        x * 1.0 -> x[1:]
        x * 1.0 -> jnp.abs(x)
        x * 1.0 -> x.at[7].multiply(-1)
        x * 1.0 -> x + 1e-6
        """,
        """
        jnp.sum(x * 1.0) -> jnp.sum(jnp.sum(x.reshape(1000, 1000), 0))
        jnp.sum(x * 1.0) -> jnp.dot(x, jnp.ones_like(x))
        jnp.sum(x * 1.0) -> jnp.sum(x[::-1])
        jnp.sum(x * 1.0) -> jnp.sum(x[::2]) + jnp.sum(x[1::2])
        """,
    ),
    "variance": Family(
        "x: 512",
        """
        m = jnp.sum(x) / 512
        d = x - m
        return jnp.sum(d * d) / 512
        """,
        """
        x - m -> x + m
        d * d) / 512 -> d * d) / 511
        sum(x) / 512 -> sum(x) / 511.9
        d * d -> d * jnp.abs(d)
        d * d) / 512 -> d * d) / 512.001
        x - m -> x - m * 1.00001
        """,
        """
        d * d -> d * x
        jnp.sum(d * d) / 512 -> jnp.sum(x * x) / 512 - m * m
        jnp.sum(d * d) / 512 -> jnp.var(x)
        jnp.sum(d * d) / 512 -> jnp.sum(d * d * (1 / 512))
        """,
        offset=100.0,
        dtypes=("float32", "float64"),
    ),
    "polynomial": Family(
        "x: 300",
        """
        return 1 + x * (0.5 + x * (0.3 + x * (-0.7 + x * 0.11)))
        """,
        """
        0.5 -> 0.5000005
        0.3 -> 0.3003
        -0.7 -> 0.7
        0.11 -> 0.110001
        1 + -> 1 -
        x * 0.11 -> x + 0.11
        """,
        """
        1 + x * (0.5 + x * (0.3 + x * (-0.7 + x * 0.11))) -> 1 + 0.5 * x + 0.3 * x ** 2 - 0.7 * x ** 3 + 0.11 * x ** 4
        1 + x * (0.5 + x * (0.3 + x * (-0.7 + x * 0.11))) -> (1 + 0.5 * x) + x * x * ((0.3 - 0.7 * x) + 0.11 * (x * x))
        1 + x * (0.5 + x * (0.3 + x * (-0.7 + x * 0.11))) -> \
            jnp.polyval(jnp.asarray([0.11, -0.7, 0.3, 0.5, 1.0], x.dtype), x)
        """,
    ),
    "cumulative": Family(
        "x: 4 64",
        """
        return jnp.cumsum(x, 1) * 1e3
        """,
        """
        x, 1) -> x[:, ::-1], 1)[:, ::-1]
        cumsum -> cumprod
        1e3 -> 1.000001e3
        x, 1) -> x.at[1, 5].multiply(-1), 1)
        jnp.cumsum(x, 1) -> jnp.cumsum(x, 1) - x
        jnp.cumsum(x, 1) -> jax.lax.cummax(x, 1)
        """,
        """
        jnp.cumsum(x, 1) -> x @ jnp.triu(jnp.ones((64, 64), x.dtype))
        jnp.cumsum(x, 1) -> jax.lax.associative_scan(jnp.add, x, axis=1)
        jnp.cumsum(x, 1) -> jax.lax.scan(lambda c, r: (c + r, c + r), jnp.zeros(4, x.dtype), x.T)[1].T
        """,
    ),
    "adam": Family(
        "w: 64, g: 64, m: 64, u: 64",
        """
        m = 0.9 * m + 0.1 * g
        v = 0.999 * u * u + 0.001 * g * g
        return w - 1e-3 * (m / 0.1) / (jnp.sqrt(v / 0.001) + 1e-8), m, v
        """,
        """
        0.999 -> 0.999001
        1e-8 -> 1e-6
        w - -> w +
        0.001 * g * g -> 0.001 * g
        m / 0.1 -> m
        0.1 * g -> 0.100001 * g
        1e-3 * -> 1.001e-3 *
        """,
        """
        (jnp.sqrt(v / 0.001) + 1e-8) -> (jnp.sqrt(v) / 0.001 ** 0.5 + 1e-8)
        0.9 * m + 0.1 * g -> m + 0.1 * (g - m)
        1e-3 * (m / 0.1) -> 1e-2 * m
        """,
    ),
    "cross entropy": Family(
        "x: 16 32, i: 16",
        """
        p = jax.nn.log_softmax(x, -1)
        return -jnp.mean(jnp.take_along_axis(p, i[:, None], 1))
        """,
        """
        -jnp.mean -> jnp.mean
        mean -> sum
        i[:, None] -> i[::-1, None]
        x, -1 -> x * 1.00001, -1
        x, -1 -> x, 0
        log_softmax -> softmax
        """,
        """
        jnp.mean(jnp.take_along_axis(p, i[:, None], 1)) -> jnp.sum(p * jax.nn.one_hot(i, 32, dtype=x.dtype)) / 16
        jax.nn.log_softmax(x, -1) -> x - jax.nn.logsumexp(x, -1, keepdims=True)
        jax.nn.log_softmax(x, -1) -> jnp.log(jax.nn.softmax(x, -1))
        """,
        scale=3.0,
        below=32,
    ),
    "rope": Family(
        "x: 12 2 16",
        """
        f = 10000.0 ** (-jnp.arange(8) / 8.0)
        a = (jnp.arange(12)[:, None] * f)[:, None].astype(x.dtype)
        p, q = x[..., :8], x[..., 8:]
        return jnp.concatenate([p * jnp.cos(a) - q * jnp.sin(a), p * jnp.sin(a) + q * jnp.cos(a)], -1)
        """,
        """
        cos(a) - q -> cos(a) + q
        10000.0 -> 10001.0
        / 8.0 -> / 7.0
        p * jnp.cos(a) -> p * jnp.sin(a)
        x[..., :8], x[..., 8:] -> x[..., 8:], x[..., :8]
        arange(12) -> arange(1, 13)
        """,
        """
        p * jnp.cos(a) - q * jnp.sin(a), p * jnp.sin(a) + q * jnp.cos(a) -> \
            q * -jnp.sin(a) + jnp.cos(a) * p, q * jnp.cos(a) + p * jnp.sin(a)
        10000.0 ** (-jnp.arange(8) / 8.0) -> jnp.exp(-jnp.log(10000.0) * jnp.arange(8) / 8.0)
        """,
        dtypes=("float32", "float64"),
    ),
    "pooling": Family(
        "x: 2 16 16",
        """
        y = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3), (1, 1, 1), "VALID") / 9
        return jax.nn.relu(y - 0.25)
        """,
        """
        / 9 -> / 8
        0.25 -> 0.250001
        0.0, jax.lax.add -> x.dtype.type(0), jax.lax.max
        y - -> y +
        relu -> gelu
        (x, 0.0 -> (x.at[0, 3, 3].add(1e-5), 0.0
        """,
        """
        / 9 -> * (1 / 9)
        jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3), (1, 1, 1), "VALID") -> \
            sum(x[:, a:a + 14, b:b + 14] for a in range(3) for b in range(3))
        jax.nn.relu(y - 0.25) -> jnp.maximum(y, 0.25) - 0.25
        jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3), (1, 1, 1), "VALID") -> \
            jax.lax.conv(x[:, None], jnp.ones((1, 1, 3, 3), x.dtype), (1, 1), "VALID")[:, 0]
        """,
    ),
    "top": Family(
        "x: 8 64",
        """
        v, i = jax.lax.top_k(x, 5)
        w = jax.nn.softmax(v * 0.5, -1)
        return w, i
        """,
        """
        0.5 -> 0.500001
        x, 5) -> -x, 5)
        v * 0.5 -> v
        return w, i -> return w, i + 1
        softmax(v -> softmax(-v
        top_k(x -> top_k(jnp.abs(x)
        """,
        """
        v, i = jax.lax.top_k(x, 5) -> \
            i = jnp.argsort(-x, -1, stable=True)[:, :5].astype(jnp.int32); v = jnp.take_along_axis(x, i, -1)
        jax.nn.softmax(v * 0.5, -1) -> jnp.exp(v * 0.5) / jnp.exp(v * 0.5).sum(-1, keepdims=True)
        """,
    ),
    "sorted": Family(
        "x: 4 50",
        """
        y = jnp.sort(x * 0.3 + 1, -1)
        return jnp.cumsum(y, -1)
        """,
        """
        0.3 -> 0.3000006
        0.3 -> -0.3
        + 1 -> - 1
        0.3 + 1, -1 -> 0.3 + 1, 0
        return jnp.cumsum(y, -1) -> return jnp.cumsum(-y, -1)
        """,
        """
        x * 0.3 + 1 -> (x + 1 / 0.3) * 0.3
        jnp.sort(x * 0.3 + 1, -1) -> jnp.sort(x, -1) * 0.3 + 1
        jnp.sort(x * 0.3 + 1, -1) -> -jnp.sort(-x * 0.3 - 1, -1)[:, ::-1]
        """,
    ),
    "argmax": Family(
        "x: 16 32, w: 32 32",
        """
        y = x @ w
        i = jnp.argmax(y, -1)
        return jax.nn.one_hot(i, 32, dtype=x.dtype) * jnp.max(y, -1, keepdims=True)
        """,
        """
        argmax -> argmin
        x @ w -> x @ w.T
        x @ w -> x @ (w * 1.00001)
        max(y, -1, -> max(-y, -1,
        argmax(y, -1 -> argmax(jnp.abs(y), -1
        (i, -> (i + 1,
        """,
        """
        jnp.argmax(y, -1) -> jnp.argsort(-y, -1)[:, 0]
        jnp.max(y, -1, keepdims=True) -> jnp.take_along_axis(y, i[:, None], -1)
        x @ w -> x[:, ::-1] @ w[::-1]
        """,
    ),
    "scatter": Family(
        "x: 40 8, i: 40",
        """
        return jnp.zeros((10, 8), x.dtype).at[i].add(x * 0.1)
        """,
        """
        0.1 -> 0.100001
        .add( -> .max(
        x * 0.1 -> x.at[3, 3].multiply(-1) * 0.1
        at[i] -> at[i[::-1]]
        0.1 -> -0.1
        .add( -> .set(
        """,
        """
        jnp.zeros((10, 8), x.dtype).at[i].add(x * 0.1) -> jax.nn.one_hot(i, 10, dtype=x.dtype).T @ (x * 0.1)
        jnp.zeros((10, 8), x.dtype).at[i].add(x * 0.1) -> jnp.zeros((10, 8), x.dtype).at[i[::-1]].add(x[::-1]) * 0.1
        """,
        below=10,
    ),
    "spectrum": Family(
        "x: 4 64",
        """
        y = jnp.fft.rfft(x)
        return jnp.real(y) ** 2 + jnp.imag(y) ** 2
        """,
        """
        rfft(x) -> rfft(x * 1.000001)
        ** 2 + jnp -> ** 2 - jnp
        rfft(x) -> rfft(x.at[0, 5].add(1e-3))
        rfft(x) -> rfft(x[:, ::-1] + x)
        jnp.imag(y) ** 2 -> jnp.imag(y)
        rfft(x) -> rfft(x) / 8
        """,
        """
        jnp.real(y) ** 2 + jnp.imag(y) ** 2 -> jnp.abs(y) ** 2
        jnp.fft.rfft(x) -> jnp.fft.fft(x)[:, :33]
        jnp.real(y) ** 2 + jnp.imag(y) ** 2 -> jnp.real(y * jnp.conj(y))
        """,
        dtypes=("float32", "float64"),
    ),
    "factored": Family(
        "x: 12 12, b: 12 3",
        """
        a = x @ x.T + 12 * jnp.eye(12, dtype=x.dtype)
        c = jnp.linalg.cholesky(a)
        y = jax.lax.linalg.triangular_solve(c, b, left_side=True, lower=True)
        return y
        """,
        """
        12 * jnp -> 12.001 * jnp
        c, b, -> c, -b,
        x @ x.T -> x.T @ x
        c, b, -> c.T, b,
        c, b, -> c * 1.00001, b,
        (a) -> (a * 1.00001)
        """,
        """
        x @ x.T -> jnp.einsum("ik,jk->ij", x, x)
        return y -> return jnp.linalg.inv(c) @ b
        """,
        dtypes=("float32", "float64"),
    ),
    "integers": Family(
        "i: 32, j: 32",
        """
        h = i * 31 + j
        h = h ^ (h >> 3)
        return h * 7 % 13
        """,
        """
        31 -> 33
        >> 3 -> >> 2
        % 13 -> % 11
        + j -> - j
        ^ -> |
        * 7 -> * 8
        """,
        """
        i * 31 + j -> (i << 5) - i + j
        h * 7 % 13 -> (h % 13) * 7 % 13
        """,
        below=1000,
        dtypes=("float32",),
    ),
    "mlp gradient": Family(
        "x: 8 16, w: 16 32, v: 32 1",
        """
        def loss(w, v):
            return jnp.mean((jnp.tanh(x @ w * 0.25) @ v - 0.3) ** 2)
        return jax.grad(loss, (0, 1))(w, v)
        """,
        """
        0.25 -> 0.250001
        0.3 -> 0.300001
        - 0.3 -> + 0.3
        tanh -> sin
        mean -> sum
        ) ** 2 -> ) ** 4
        """,
        """
        return jnp.mean((jnp.tanh(x @ w * 0.25) @ v - 0.3) ** 2) -> \
            return jnp.sum((jnp.tanh(x @ (w * 0.25)) @ v - 0.3) ** 2) / 8
        jax.grad(loss, (0, 1))(w, v) -> \
            jax.tree.map(lambda a, b: (a + b) / 2, jax.grad(lambda w, v: 2 * loss(w, v), (0, 1))(w, v), \
            (jnp.zeros_like(w), jnp.zeros_like(v)))
        jax.grad(loss, (0, 1))(w, v) -> \
            (lambda t: (x.T @ ((2 / 8 * (t @ v - 0.3)) @ v.T * (1 - t * t)) * 0.25, t.T @ (2 / 8 * (t @ v - \
            0.3))))(jnp.tanh(x @ w * 0.25))
        """,
    ),
    "dropout": Family(
        "x: 32 8, n:",
        """
        keep = jax.random.bernoulli(jax.random.key(n), 0.75, x.shape)
        return jnp.where(keep, x / 0.75, 0.0)
        """,
        """
        x / 0.75 -> x
        0.75, x.shape -> 0.25, x.shape
        x / 0.75 -> x / 0.750001
        key(n) -> key(n + 1)
        x / 0.75, 0.0 -> 0.0, x / 0.75
        x / 0.75 -> x * 0.75
        """,
        """
        x / 0.75 -> x * (4 / 3)
        jnp.where(keep, x / 0.75, 0.0) -> x * keep / 0.75
        """,
    ),
    "logistic map": Family(
        "x: 8",
        """
        y = jax.nn.sigmoid(x)
        for _ in range(12):
            y = 3.7 * y * (1 - y)
        return y
        """,
        """
        3.7 -> 3.7001
        3.7 -> 3.700004
        (12) -> (13)
        (1 - y) -> (1 + y)
        (1 - y) -> (1.00001 - y)
        """,
        """
        3.7 * y * (1 - y) -> 3.7 * (y * (1 - y))
        3.7 * y * (1 - y) -> 3.7 * (y - y * y)
        3.7 * y * (1 - y) -> 0.925 - 3.7 * (y - 0.5) ** 2
        """,
        dtypes=("float32", "float64"),
    ),
    "power iteration": Family(
        "a: 12 12, v: 12",
        """
        a = a @ a.T
        for _ in range(20):
            v = a @ v
            v = v / jnp.sqrt(jnp.sum(v * v))
        return v, v @ a @ v
        """,
        """
        (20) -> (19)
        a @ a.T -> a @ a
        v = a @ v -> v = a @ v + 1e-4
        sum(v * v) -> max(v * v)
        v @ a @ v -> v @ a @ v * 1.000001
        a @ a.T -> a @ a.T * 1.00001
        """,
        """
        v / jnp.sqrt(jnp.sum(v * v)) -> v * jax.lax.rsqrt(v @ v)
        v = a @ v -> v = v @ a
        v @ a @ v -> jnp.sum(v * (a @ v))
        """,
        dtypes=("float32", "float64"),
    ),
    "newton": Family(
        "x: 64",
        """
        x = jnp.abs(x) + 0.5
        y = x
        for _ in range(6):
            y = 0.5 * (y + x / y)
        return y
        """,
        """
        0.5 * -> 0.500001 *
        + 0.5 -> + 0.500001
        y + x -> y - x
        (6) -> (1)
        x / y -> y / x
        """,
        """
        0.5 * (y + x / y) -> y - (y * y - x) / (2 * y)
        0.5 * (y + x / y) -> 0.5 * y + 0.5 * x / y
        (6) -> (9)
        """,
        dtypes=("float32",),
    ),
    "heat": Family(
        "x: 32 32",
        """
        def step(_, u):
            return u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)
        return jax.lax.fori_loop(0, 30, step, x)
        """,
        """
        0.1 -> 0.1000005
        4 * u -> 4.0001 * u
        30 -> 31
        u + 0.1 -> u - 0.1
        roll(u, -1, 1) -> roll(u, 1, 1)
        roll(u, 1, 0) -> roll(u, 2, 0)
        """,
        """
        u + 0.1 * ( -> 0.6 * u + 0.1 * ( && - 4 * u -> - 0 * u
        jax.lax.fori_loop(0, 30, step, x) -> jax.lax.fori_loop(0, 30, step, x, unroll=30)
        jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) -> \
            jnp.roll(u, -1, 1) + jnp.roll(u, -1, 0) + (jnp.roll(u, 1, 1) + jnp.roll(u, 1, 0))
        """,
    ),
    "bits": Family(
        "x: 64",
        """
        x = jnp.abs(x) + 0.1
        i = 0x5F3759DF - (jax.lax.bitcast_convert_type(x, jnp.int32) >> 1)
        y = jax.lax.bitcast_convert_type(i, jnp.float32)
        return y * (1.5 - 0.5 * x * y * y)
        """,
        """
        0x5F3759DF -> 0x5F3759E0
        1.5 -> 1.500001
        0.5 * -> 0.500001 *
        >> 1 -> >> 2
        + 0.1 -> + 0.10001
        """,
        """
        1.5 - 0.5 * x * y * y -> 1.5 - 0.5 * (x * (y * y))
        y * (1.5 - 0.5 * x * y * y) -> y + y * (0.5 - 0.5 * x * y * y)
        """,
        dtypes=("float32",),
    ),
    "mixed": Family(
        "x: 16 64, w: 64 16",
        """
        y = jax.lax.dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
        return jax.nn.silu(y * 0.125 + 0.7)
        """,
        """
        0.125 -> 0.1250001
        0.7 -> 0.70001
        x.astype -> (-x).astype
        silu -> gelu
        y * 0.125 -> y
        """,
        """
        jax.nn.silu(y * 0.125 + 0.7) -> (lambda z: z / (1 + jnp.exp(-z)))(y * 0.125 + 0.7)
        y * 0.125 + 0.7 -> (y + 5.6) * 0.125
        jax.lax.dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32) -> \
            jax.lax.dot(x.astype(jnp.bfloat16).astype(jnp.float32), w.astype(jnp.bfloat16).astype(jnp.float32))
        """,
        dtypes=("float32",),
    ),
    "distances": Family(
        "x: 10 8, y: 12 8",
        """
        d = x[:, None] - y[None]
        return jnp.exp(-0.05 * jnp.sum(d * d, -1))
        """,
        """
        - y -> + y
        -0.05 -> -0.0500001
        * d -> * jnp.abs(d)
        sum -> mean
        -0.05 -> 0.05
        """,
        """
        jnp.sum(d * d, -1) -> (jnp.sum(x * x, 1)[:, None] + jnp.sum(y * y, 1) - 2 * x @ y.T)
        jnp.exp(-0.05 * jnp.sum(d * d, -1)) -> jnp.prod(jnp.exp(-0.05 * d * d), -1)
        """,
    ),
    "batchnorm": Family(
        "x: 16 4 6, g: 4",
        """
        m = x.mean((0, 2), keepdims=True)
        v = x.var((0, 2), keepdims=True)
        return (x - m) / jnp.sqrt(v + 1e-3) * g[None, :, None]
        """,
        """
        1e-3 -> 1.001e-3
        mean((0, 2) -> mean((0, 1)
        var((0, 2) -> var((1, 2)
        x - m -> x
        * g[None, :, None] -> * g[None, ::-1, None]
        """,
        """
        x.var((0, 2), keepdims=True) -> (x * x).mean((0, 2), keepdims=True) - m * m
        (x - m) / jnp.sqrt(v + 1e-3) * g[None, :, None] -> (x - m) * (g[None, :, None] / jnp.sqrt(v + 1e-3))
        """,
        offset=2.0,
    ),
    "softplus": Family(
        "x: 128",
        """
        return jnp.log1p(jnp.exp(x)) + jnp.expm1(x * 0.1)
        """,
        """
        log1p -> log
        0.1 -> 0.1000002
        exp(x) -> exp(-x)
        expm1 -> exp
        exp(x)) + -> exp(x)) -
        """,
        """
        jnp.log1p(jnp.exp(x)) -> jnp.log(1 + jnp.exp(x))
        jnp.log1p(jnp.exp(x)) -> jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))
        jnp.expm1(x * 0.1) -> jnp.exp(x * 0.1) - 1
        jnp.expm1(x * 0.1) -> 2 * jnp.sinh(x * 0.05) * jnp.exp(x * 0.05)
        """,
        scale=3.0,
    ),
    "taylor": Family(
        "a: 8 8",
        """
        a = a * 0.2
        y = t = jnp.eye(8, dtype=a.dtype)
        for k in range(1, 12):
            t = t @ a / k
            y = y + t
        return y
        """,
        """
        0.2 -> 0.2000001
        (1, 12) -> (1, 5)
        y + t -> y - t
        / k -> / (k * 1.00001)
        * 0.2 -> * -0.2
        """,
        """
        t @ a / k -> a @ t / k
        t @ a / k -> t @ (a / k)
        y = y + t -> y = t + y
        """,
    ),
    "moving average": Family(
        "x: 60 4",
        """
        def step(c, r):
            c = 0.95 * c + 0.05 * r
            return c, c / 0.99
        return jax.lax.scan(step, jnp.zeros(4, x.dtype), x)[1]
        """,
        """
        0.95 -> 0.950001
        0.05 -> 0.050001
        0.99 -> 0.99001
        + 0.05 -> - 0.05
        zeros -> ones
        """,
        """
        0.95 * c + 0.05 * r -> c + 0.05 * (r - c)
        c / 0.99 -> c * (1 / 0.99)
        jax.lax.scan(step, jnp.zeros(4, x.dtype), x)[1] -> \
            (0.05 / 0.99 * jnp.tril(0.95 ** jnp.maximum(jnp.arange(60.0)[:, None] - jnp.arange(60.0), \
            0.0)).astype(x.dtype)) @ x
        """,
    ),
    "lstm": Family(
        "x: 20 8, w: 16 32, b: 32",
        """
        def step(carry, r):
            h, c = carry
            i, f, o, g = jnp.split(jnp.concatenate([r, h]) @ w * 0.3 + b, 4)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        return jax.lax.scan(step, (jnp.zeros(8, x.dtype), jnp.zeros(8, x.dtype)), x)[1]
        """,
        """
        0.3 -> 0.300001
        f + 1 -> f + 1.00001
        i, f, o -> f, i, o
        tanh(g) -> sin(g)
        + b, 4 -> - b, 4
        [r, h] -> [h, r]
        """,
        """
        jax.nn.sigmoid(i) -> 0.5 * (1 + jnp.tanh(i / 2))
        jnp.concatenate([r, h]) @ w -> (r @ w[:8] + h @ w[8:])
        jax.nn.sigmoid(f + 1) -> 1 / (1 + jnp.exp(-1 - f))
        """,
    ),
}
