"""Native loops heed interrupts, alone and in threads."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.jit.interrupts import iterations_between_polls

ROOT = Path(__file__).parents[3]
FOREVER = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %r = stablehlo.while(%v = %x) : tensor<f32>
    cond {
      %c = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %w = stablehlo.add %v, %v : tensor<f32>
      stablehlo.return %w : tensor<f32>
    }
  return %r : tensor<f32>
}"""
#: The first call of Python that the loop makes is where the interrupt strikes.
SCRIPT = """
import os, signal, threading, numpy as np, spmd
from spmd.backends.llvm.jit import interrupts
once = iter([signal.SIGINT])
interrupts._nothing = lambda: [os.kill(os.getpid(), each) for each in once]
executable = spmd.compile(spmd.parse({text!r}))
try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
print(threading.active_count())
"""


@pytest.mark.parametrize(
    "call",
    [
        "executable(np.float32(1))",
        "spmd.run_parallel(executable.module, spmd.ProcessGrid(2, 1), [[np.float32(1)]] * 2)",
    ],
)
def test_an_interrupt_ends_a_native_loop(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(text=FOREVER, call=call)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.stdout.split() == ["interrupted", "1"], done.stderr


def test_a_loop_asks_more_often_the_longer_its_turns_are() -> None:
    assert iterations_between_polls(0) == iterations_between_polls(1) == 1 << 16
    assert iterations_between_polls(1 << 20) == 1 << 6
    assert iterations_between_polls(1 << 40) == 1


def test_what_another_thread_computes_is_not_disturbed() -> None:
    executable = spmd.compile(spmd.parse(FOREVER.replace("dense<true>", "dense<false>")))
    results: list[float] = []
    threads = [threading.Thread(target=lambda: results.append(float(executable(np.float32(2))[0]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2.0] * 4
