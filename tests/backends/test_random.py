"""rng_bit_generator, bit for bit, and rng."""

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.backends.numpy.random import philox4x32, threefry2x32


def bits(algorithm: str, state: np.ndarray, element: str, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    size = "".join(f"{extent}x" for extent in shape)
    types = f"tensor<{state.size}xui64>, tensor<{size}{element}>"
    text = f"""func.func @main(%s: tensor<{state.size}xui64>) -> ({types}) {{
      %n, %b = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : (tensor<{state.size}xui64>) -> ({types})
      return %n, %b : {types}
    }}"""
    return spmd.compile(spmd.parse(text))(state)


@pytest.mark.parametrize(
    ("counter", "key", "output"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(counter: tuple[int, int], key: tuple[int, int], output: tuple[int, int]) -> None:
    """The authors' known answers for 20 rounds."""
    with np.errstate(all="ignore"):
        x, y = threefry2x32(tuple(map(np.uint32, key)), *(np.uint32([word]) for word in counter))
    assert (int(x[0]), int(y[0])) == output


@pytest.mark.parametrize(
    ("counter", "key", "output"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], output: tuple[int, ...]) -> None:
    """The authors' known answers for 10 rounds."""
    words = philox4x32(key, [np.uint64([word]) for word in counter])
    assert tuple(int(word[0]) for word in words) == output
    assert tuple(philox4x32(key, list(counter))) == output


@pytest.mark.parametrize("element", ["ui32", "ui64"])
@pytest.mark.parametrize("state", [[5, 2**64 - 3], [5, 2**64 - 3, 8], [2**64 - 1, 2**64 - 1, 2**64 - 1]])
def test_few_bits_are_the_first_of_many(element: str, state: list[int]) -> None:
    start = np.array(state, np.uint64)
    _, many = bits("PHILOX", start, element, (100,))
    for size in (0, 1, 5, 16):
        _, few = bits("PHILOX", start, element, (size,))
        assert few.tolist() == many[:size].tolist()


@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX", "DEFAULT"])
def test_the_same_bits_as_xla(algorithm: str) -> None:
    jax = pytest.importorskip("jax")
    cases = [(7, shape, np.uint32) for shape in ((), (5,), (3, 3), (3, 4, 2), (2, 0))]
    cases += [(2**32 - 3, (3, 5), np.uint8), (2**64 - 2, (9,), np.uint32), (2**64 - 2, (3, 3), np.uint64)]
    states = [np.array([5, start], np.uint64) for start, _, _ in cases]

    def drawn(*states: object) -> list[object]:  # compiled once for all
        name = getattr(jax.lax.RandomAlgorithm, "RNG_" + algorithm)
        draws = zip(states, cases, strict=True)
        return [jax.lax.rng_bit_generator(state, shape, dtype, algorithm=name) for state, (_, shape, dtype) in draws]

    with jax.enable_x64(True):
        expected = jax.jit(drawn)(*states)
        for state, (_, shape, dtype), (new, want) in zip(states, cases, expected, strict=True):
            got_new, got = bits(algorithm, state, f"ui{8 * np.dtype(dtype).itemsize}", shape)
            np.testing.assert_array_equal(got, np.asarray(want))
            np.testing.assert_array_equal(got_new, np.asarray(new))


def test_philox_takes_a_counter_of_128_bits() -> None:
    new, first = bits("PHILOX", np.array([5, 2**64 - 1, 0], np.uint64), "ui32", (8,))
    assert new.tolist() == [5, 1, 1]
    _, second = bits("PHILOX", np.array([5, 0, 1], np.uint64), "ui32", (4,))
    assert first[4:].tolist() == second.tolist()


def test_continuing_from_the_new_state_gives_what_one_call_gives() -> None:
    for algorithm in ("THREE_FRY", "PHILOX"):
        state = np.array([9, 3], np.uint64)
        _, whole = bits(algorithm, state, "ui64", (8,))
        between, head = bits(algorithm, state, "ui64", (4,))
        _, tail = bits(algorithm, between, "ui64", (4,))
        if algorithm == "THREE_FRY":
            assert [*head, *tail] == whole.tolist()
        assert head.tolist() == whole[:4].tolist()


def test_other_types_take_the_low_bits() -> None:
    state = np.array([9, 3], np.uint64)
    _, words = bits("PHILOX", state, "ui32", (16,))
    _, bytes_ = bits("PHILOX", state, "i8", (16,))
    _, floats = bits("PHILOX", state, "f32", (16,))
    assert (words & 0xFF).tolist() == bytes_.view(np.uint8).tolist()
    assert floats.view(np.uint32).tolist() == words.tolist()


def test_a_state_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(spmd.SpmdError, match=r"rng_bit_generator.*state"):
        bits("THREE_FRY", np.zeros(3, np.uint64), "ui32", (4,))


def drawing(distribution: str, element: str) -> spmd.Executable:
    text = f"""func.func @main(%a: tensor<{element}>, %b: tensor<{element}>) -> tensor<100x200x{element}> {{
      %s = stablehlo.constant dense<[100, 200]> : tensor<2xi64>
      %r = "stablehlo.rng"(%a, %b, %s) {{rng_distribution = #stablehlo<rng_distribution {distribution}>}}
        : (tensor<{element}>, tensor<{element}>, tensor<2xi64>) -> tensor<100x200x{element}>
      return %r : tensor<100x200x{element}>
    }}"""
    return spmd.compile(spmd.parse(text))


def drawn(distribution: str, a: object, b: object, element: str) -> np.ndarray:
    return drawing(distribution, element)(np.asarray(a), np.asarray(b))[0]


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(
    ("element", "dtype"), [("f16", np.float16), ("f32", np.float32), ("f64", np.float64), ("bf16", ml_dtypes.bfloat16)]
)
def test_rng_of_floats(element: str, dtype: type) -> None:
    uniform = drawn("UNIFORM", dtype(-2), dtype(3), element)
    assert uniform.dtype == dtype and uniform.shape == (100, 200)
    wide = uniform.astype(np.float64)
    assert wide.min() >= -2 and wide.max() < 3 and abs(wide.mean() - 0.5) < 0.1
    normal = drawn("NORMAL", dtype(1), dtype(2), element).astype(np.float64)
    assert abs(normal.mean() - 1) < 0.1 and abs(normal.std() - 2) < 0.1


@pytest.mark.usefixtures("seeded")
def test_rng_of_integers_and_booleans() -> None:
    values = drawn("UNIFORM", np.int32(-2), np.int32(3), "i32")
    assert sorted(set(values.ravel().tolist())) == [-2, -1, 0, 1, 2]
    assert set(drawn("UNIFORM", np.False_, np.True_, "i1").ravel().tolist()) == {False, True}


@pytest.mark.usefixtures("seeded")
def test_rng_draws_anew_at_every_run() -> None:
    program = drawing("UNIFORM", "f64")
    bounds = np.float64(0), np.float64(1)
    assert (program(*bounds)[0] != program(*bounds)[0]).any()
