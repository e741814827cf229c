"""Programs whose calls return before they have run; run as a script, with spmd as JAX's client.

A program waits for the function of Python that it calls, which waits for a flag: so that what the caller does meanwhile
is done while the program is under way, whatever the machine's speed.
"""

import os
import threading

import jax
import jax.numpy as jnp
import numpy as np

FLAG = threading.Event()
ORDER = []


def held(x):
    """`x`, once the flag is set."""

    def wait(value):
        assert FLAG.wait(60)
        ORDER.append(float(np.ravel(value)[0]))
        return value

    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


slow = jax.jit(lambda x: held(x) + 1)
quick = jax.jit(lambda x: x * 2)
donating = jax.jit(lambda x: x + 1, donate_argnums=0)


@jax.jit
def failing(x):
    def fail(value):
        assert FLAG.wait(60)
        raise ValueError("no value of this kind")

    return jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def begin():
    """A fresh flag, and buffers whose programs are under way."""
    FLAG.clear()
    ORDER.clear()
    return jnp.full(4, 3.0)


def order_and_values():
    x = begin()
    for _ in range(20):  # a program is run by its caller once it was seen to be short
        quick(x).block_until_ready()
    results = [slow(x + i) for i in range(3)]
    later = quick(results[0]) + results[2]
    assert not any(each.is_ready() for each in (*results, later))
    assert quick(x).is_ready()  # what is there needs not wait for what is not
    FLAG.set()
    np.testing.assert_array_equal(later, [14.0] * 4)
    assert [float(each[0]) for each in results] == [4.0, 5.0, 6.0]
    assert ORDER == [3.0, 4.0, 5.0]


def errors():
    x = begin()
    y = failing(x)
    z = quick(y)
    assert not y.is_ready()
    FLAG.set()
    for value in (y, z):
        try:
            value.block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            assert "no value of this kind" in str(error), error
            assert "asynchronous_programs.py:40: stablehlo.custom_call: " in str(error), error
        else:
            raise AssertionError("the error is lost")
    np.testing.assert_array_equal(quick(x), [6.0] * 4)  # those of later programs are unharmed


def donation():
    x = begin()
    y = slow(x)
    z = donating(y)
    assert y.is_deleted() and not z.is_ready()
    FLAG.set()
    np.testing.assert_array_equal(z, [5.0] * 4)


def deletion():
    x = begin()
    y, z = slow(x), slow(x)
    y.delete()
    del z
    w = slow(x)
    FLAG.set()
    np.testing.assert_array_equal(w, [4.0] * 4)
    assert ORDER == [3.0] * 3
    assert jax.devices()[0].memory_stats()["bytes_in_use"] < 1 << 16


def copies():
    x = begin()
    y = slow(x)
    y.copy_to_host_async()
    assert not y.is_ready()
    FLAG.set()
    np.testing.assert_array_equal(np.asarray(y), [4.0] * 4)


def reading():
    """np.asarray waits for the value."""
    x = begin()
    y = slow(x)
    threading.Timer(0.0, FLAG.set).start()
    np.testing.assert_array_equal(np.asarray(y), [4.0] * 4)


def forks():
    x = begin()
    FLAG.set()
    y = slow(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(y, [4.0] * 4) and np.array_equal(quick(x), [6.0] * 4) else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(slow(y), [5.0] * 4)


def at_exit():
    """What is under way when the script ends is done before the process ends."""
    x = begin()
    slow(x)
    jax.jit(lambda x: jax.debug.callback(lambda value: print("done", float(value[0])), held(x)))(x)
    FLAG.set()


if __name__ == "__main__":
    for check in (order_and_values, errors, donation, deletion, copies, reading, forks, at_exit):
        check()
