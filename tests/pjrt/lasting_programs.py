"""Calls, compilations, buffers of four threads and failing calls, after which nothing is left; run as a script.

`python lasting_programs.py CALLS COMPILATIONS` has spmd as JAX's client; it prints how many kB of memory were taken
after the first tenth.
"""

import functools
import gc
import sys
import threading
import weakref
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.dispatch import runtime_tokens
from jax.extend.backend import clear_backends
from programs import HANDLER

from spmd.backends.kernels import TARGETS
from spmd.pjrt import ffi_functions, handles
from spmd.pjrt.programs import Program
from spmd.pjrt.runs import QUEUE


def calls(count):
    step, x = jax.jit(lambda x: x + 1), jnp.float32(0)
    for _ in range(count):
        x = step(x)
    assert x == min(count, 1 << 24)


def handled(x, by):
    call = jax.ffi.ffi_call("scaled", jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={0: 0})
    return call(x, by=by, shifts=np.array([1, 2]), to="go")


def compilations(count, first):
    """Programs of which each has its own sizes and constants, and some a handler of the user's."""
    for number in range(first, first + count):
        size = number % 50 + 1
        function = jax.jit(lambda x, number=number: x * number)
        np.testing.assert_array_equal(function(np.ones(size, np.float32)), np.full(size, number, np.float32))
        if number % 10 == 0:
            jax.jit(functools.partial(handled, by=np.float32(number)))(jnp.ones(size)).block_until_ready()
        if number % 200 == 0:
            jax.clear_caches()


def buffers(count):
    def make(thread):
        for number in range(count):
            x = jax.device_put(np.full(number % 100 + 1, thread, np.float32))
            y = x + 1
            x.delete()
            assert y[0] == thread + 1

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def failures(count):
    def fail(value):
        raise ValueError("no value of this kind")

    failing = jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
    for number in range(count):
        try:
            failing(jnp.ones(number + 1)).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            assert "no value of this kind" in str(error)
    runtime_tokens.clear()  # JAX would raise the last one's error once more at exit


def everything(total, compiled, first):
    calls(total)
    compilations(compiled, first)
    buffers(total // 1000)
    failures(4)
    QUEUE.drain()  # a run holds its program for a moment after its end
    jax.clear_caches()
    gc.collect()


def left():
    """What there is of each kind, and the bytes of buffers."""
    kinds = Counter(type(handle).__name__ for handle in handles._objects.values())
    programs = sum(isinstance(thing, Program) for thing in gc.get_objects())
    return kinds, programs, len(ffi_functions._objects), len(TARGETS), jax.devices()[0].memory_stats()["bytes_in_use"]


def kilobytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def main(total, compiled):
    jax.ffi.register_ffi_target("scaled", jax.ffi.pycapsule(HANDLER), platform="cpu")
    everything(total // 10, compiled // 10, 1)
    before, taken = left(), kilobytes()
    everything(total, compiled, 1 + compiled // 10)
    assert left() == before, (left(), before)
    print(kilobytes() - taken)
    client = weakref.ref(jax.devices()[0].client)
    clear_backends()
    gc.collect()
    assert client() is not None  # its destructor may wait forever for threads of its own


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
