"""An exception of a signal handler goes through a running program as it was raised."""

import contextlib
import functools
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import numpy as np
import pytest

import spmd

TEXT = """
func.func @main(%x: tensor<10xf32>) -> tensor<10xf32> {
  %true = stablehlo.constant dense<true> : tensor<i1>
  %first = stablehlo.custom_call @tests.begin(%x) : (tensor<10xf32>) -> tensor<10xf32>
  %0:2 = stablehlo.while(%go = %true, %v = %first) : tensor<i1>, tensor<10xf32>
  cond {
    stablehlo.return %go : tensor<i1>
  } do {
    %w = stablehlo.custom_call @tests.ring(%v) : (tensor<10xf32>) -> tensor<10xf32>
    %u = stablehlo.cosine %w : tensor<10xf32>
    stablehlo.return %go, %u : tensor<i1>, tensor<10xf32>
  }
  return %0#1 : tensor<10xf32>
}"""
FOREVER = spmd.parse(TEXT)
NATIVE = spmd.parse(TEXT.replace("stablehlo.custom_call @tests.ring(%v)", '"stablehlo.sine"(%v)'))
GRID = spmd.ProcessGrid(2, 1)
X = np.ones(10, np.float32)


class Late(Exception):
    """What a user's handler raises."""


def raise_late(number: int, frame: FrameType | None) -> None:
    raise Late("out of time")


class Clock:
    def ring(self, *arguments: object) -> None:
        raise Late("out of time")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.ring()


@contextlib.contextmanager
def alarmed(handler: Callable[[int, FrameType | None], object], *, by_timer: bool) -> Iterator[None]:
    """Call `handler` in the main thread while FOREVER runs, by a signal that the program sends in its third turn.

    A loop of native code sends none: for NATIVE a timer begins with the program, which then never ends by itself. The
    signal comes again, in case its exception was lost in what ignores exceptions.
    """
    turns = itertools.count()

    def begin(x: np.ndarray, attributes: object) -> np.ndarray:
        if by_timer:
            signal.setitimer(signal.ITIMER_REAL, 0.1, 5.0)
        return x

    def ring(x: np.ndarray, attributes: object) -> np.ndarray:
        if next(turns) % 20_000 == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        return x

    spmd.register_custom_call("tests.begin", begin)
    spmd.register_custom_call("tests.ring", ring)
    signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        ignore_alarms()


def ignore_alarms() -> None:
    """Ignore SIGALRM from here on: threads of a program that is being ended may still send it, which ends a process
    that does nothing of its own about it."""
    while signal.getsignal(signal.SIGALRM) is not signal.SIG_IGN:
        with contextlib.suppress(Late):  # of one that comes at this moment
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


RUNS: dict[str, Callable[[spmd.Module], object]] = {
    "native": lambda module: spmd.compile(module)(X),
    "numpy": lambda module: spmd.compile(module, backends=("numpy",))(X),
    "threads": lambda module: spmd.run_parallel(module, GRID, [[X], [X]], mode="threads"),
    "stacked": lambda module: spmd.simulate(module, GRID)(np.stack([X, X])),
}


@pytest.mark.parametrize("module", [FOREVER, NATIVE], ids=["callback", "native loop"])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_an_exception_of_a_handler_stays_what_it_is(run: Callable[[spmd.Module], object], module: spmd.Module) -> None:
    with pytest.raises(Late, match=r"^out of time$"), alarmed(raise_late, by_timer=module is NATIVE):
        run(module)


@pytest.mark.parametrize(
    "handler", [Clock().ring, Clock(), functools.partial(raise_late)], ids=["method", "object", "partial"]
)
def test_handlers_of_every_kind(handler: Callable[[int, FrameType | None], object]) -> None:
    with pytest.raises(Late), alarmed(handler, by_timer=False):
        spmd.compile(FOREVER)(X)


def test_an_exception_of_the_program_still_names_its_op() -> None:
    def fail(x: np.ndarray, attributes: object) -> np.ndarray:
        raise Late("of a callback")

    spmd.register_custom_call("tests.begin", lambda x, attributes: x)
    spmd.register_custom_call("tests.ring", fail)
    with pytest.raises(spmd.ExecutionError, match=r"Late: of a callback"):
        spmd.compile(FOREVER)(X)
