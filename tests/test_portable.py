"""What one operating system alone has stands in one module each, which has another way beside it."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from collectives import processes, shared_memory
from collectives.system import IS_PORTABLE, VARIABLE

ROOT = Path(__file__).parents[1]
#: Where each thing that is not everywhere may be spoken of, in code.
OWN = {
    r"sys\.platform|platform\.system": {"collectives/system.py"},
    r"sched_getaffinity": {"collectives/system.py"},
    r"\bprctl\b": {"collectives/processes.py"},
    r"\bpidfd": {"launch/listeners.py"},
    r"/dev/shm|O_TMPFILE|posix_fallocate": {"collectives/shared_memory.py"},
    r"\bFUTEX|@syscall": {"spmd/backends/llvm/parallel/sleeping.py"},
    r"\.syscall\(": {"launch/listeners.py", "spmd/backends/llvm/jit/processor.py"},
    r"/sys/fs/cgroup|/proc/self/cgroup": {"spmd/support/control_groups.py"},
    r"/proc/meminfo": {"spmd/analysis/memory.py"},
    r"/sys/devices": {"spmd/support/machine.py"},
    r"/proc/[^sm]": {"collectives/processes.py", "collectives/shared_memory.py", "launch/listeners.py"},
}


@pytest.mark.parametrize("pattern", OWN)
def test_what_is_a_systems_own_is_in_one_place_which_asks_which_system_it_is(pattern: str) -> None:
    folders = ("spmd", "collectives", "partitioner", "launch")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if re.search(pattern, _code(file))}
    assert found == OWN[pattern]
    asking = [file for file in found if "IS_LINUX" in (ROOT / file).read_text()]
    assert sorted(asking) == sorted(found)


@cache
def _code(file: Path) -> str:
    """A file without its comments and descriptions."""
    text = re.sub(r'^\s*"""(?:[^"]|"(?!""))*"""', "", file.read_text(), flags=re.M)
    return re.sub(r"(?m)(^|\s)#.*$", "", text)


SCRIPT = """
import os, sys, numpy as np, spmd
from collectives import system
from collectives.processes import command_of, name_of, running_children, start_of, state_of
from collectives.shared_memory import attach, create, forget
from spmd.support.machine import usable_cores
from spmd.analysis.memory import free_memory
import mmap, subprocess
assert not system.IS_LINUX and usable_cores() >= 1 and free_memory() > 0
one, name = create(4096)
mmap.mmap(one, 4096)[:3] = b"abc"
other = attach(name)
assert mmap.mmap(other, 4096)[:3] == b"abc"
forget(name)
try:
    attach(name)
except FileNotFoundError:
    pass
else:
    raise SystemExit("a name has stayed")
child = subprocess.Popen([sys.executable, "-c", "input()", "spmd-word"], stdin=subprocess.PIPE)
me = os.getpid()
assert running_children(me) == [str(child.pid)], running_children(me)
assert start_of(me) and start_of(child.pid) and state_of(str(child.pid)) in "RSDI"
assert b"spmd-word" in command_of(child.pid) and "python" in name_of(me).lower()
child.communicate(b"\\n")
assert running_children(me) == [] and running_children(child.pid) is None
assert (start_of(child.pid), state_of(str(child.pid)), command_of(child.pid)) == ("", "X", b"")
text = '''func.func @main(%x: tensor<1000x3000xf32>) -> tensor<1000x3000xf32> {
  %0 = stablehlo.exponential %x : tensor<1000x3000xf32>
  return %0 : tensor<1000x3000xf32>
}'''
x = np.linspace(-1, 1, 3_000_000, dtype=np.float32).reshape(1000, 3000)
step = spmd.compile(spmd.parse(text), threads=3)
first = step(x)[0]
if os.fork() == 0:
    os._exit(0 if (step(x)[0] == first).all() else 1)
assert os.wait()[1] == 0
for _ in range(20):
    assert (step(x)[0] == first).all()
np.testing.assert_allclose(first, np.exp(x), rtol=3e-7)
"""


def test_the_ways_of_any_system_do_the_same() -> None:
    """Shared memory, processes and workers, in a process that takes Linux for another system."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, VARIABLE: "1"}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("portable", ["0", "1"])
def test_a_process_ends_with_its_parent_on_any_system(portable: str) -> None:
    child = (
        "from collectives.processes import end_with_parent; end_with_parent(); print('on', flush=True); "
        "import time; time.sleep(600)"
    )
    script = (
        "import subprocess, sys; "
        f"c = subprocess.Popen([sys.executable, '-c', \"{child}\"], stdout=subprocess.PIPE); "
        "c.stdout.readline(); print(c.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, VARIABLE: portable}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while processes.state_of(str(number)) not in processes.ENDED and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes.state_of(str(number)) in processes.ENDED


def test_memory_that_nobody_tells_of_is_found_by_nobody() -> None:
    with pytest.raises(OSError):
        shared_memory.attach("/spmd.nowhere" if IS_PORTABLE else "/proc/1/fd/999999")
