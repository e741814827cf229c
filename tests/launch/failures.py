"""The matrix of failures: one rank of a job goes wrong just before a collective, and the job must end well.

``python -m tests.launch.failures --runs 100`` draws faults, collectives and numbers of ranks at random; a few fixed
ones are tests of their own. A job ends well when it ends with the status of its fault, the first cause is the last on
the screen, and neither its processes nor its folder in shared memory stay behind.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from launch.job import SHARED_VARIABLE

ROOT = Path(__file__).parents[2]
WATCHDOG_SECONDS = 120.0  # for a job, and for what stays behind a moment longer

REGION = """({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  })"""
COLLECTIVES = {
    "all_reduce": (REGION, "replica_groups = dense<GROUP> : tensor<1xNxi64>", "tensor<8xf32>"),
    "reduce_scatter": (REGION, "scatter_dimension = 0 : i64, replica_groups = dense<GROUP> : tensor<1xNxi64>", "PART"),
    "all_gather": ("", "all_gather_dim = 0 : i64, replica_groups = dense<GROUP> : tensor<1xNxi64>", "WHOLE"),
    "all_to_all": (
        "",
        "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = N : i64, "
        "replica_groups = dense<GROUP> : tensor<1xNxi64>",
        "tensor<8xf32>",
    ),
    "collective_broadcast": ("", "replica_groups = dense<GROUP> : tensor<1xNxi64>", "tensor<8xf32>"),
    "collective_reduce": (REGION, "replica_groups = dense<GROUP> : tensor<1xNxi64>", "tensor<8xf32>"),
    "collective_permute": ("", "source_target_pairs = dense<RING> : tensor<Nx2xi64>", "tensor<8xf32>"),
}

WORKER = """
import os, signal, sys, time
import numpy as np
import spmd
from collectives.mpi import MpiCommunicator
text, other, fault, victim = sys.argv[1:5]
exe = spmd.compile(spmd.parse(text, name="program.mlir"), check_collectives=fault == "mismatch")
wrong = spmd.compile(spmd.parse(other, name="other.mlir"), check_collectives=True) if fault == "mismatch" else None
x = np.ones(8, np.float32)
for step in range(20):
    if step == 10 and exe.process.rank == int(victim):
        print("going wrong with", os.environ.get("SHARED_VARIABLE", "nothing"), flush=True)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "raise":
            raise ValueError("out of cheese")
        elif fault == "exit":
            sys.exit(3)
        elif fault == "leave":
            os._exit(0)
        elif fault == "interrupt":
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.kill(os.getpid(), signal.SIGINT)
        elif fault == "hang":
            time.sleep(600)
        elif fault == "mismatch":
            wrong(x)
    if step == 10 and fault == "hang":  # all ranks have come so far; the victim comes no farther
        MpiCommunicator.world().set_timeout(1.0, abort=True)
    exe(x)
""".replace("SHARED_VARIABLE", SHARED_VARIABLE)

#: The status of the job.
STATUSES = {"kill": 128 + signal.SIGKILL, "exit": 3, "interrupt": 130}
#: What the last lines on the screen must say.
WORDS = {
    "kill": ("rank {victim} ", "was killed by signal 9 (SIGKILL)"),
    "raise": ("rank {victim} of {ranks}", "ValueError: out of cheese"),
    "exit": ("rank {victim} of {ranks}", "exited with status 3"),
    "leave": ("rank {victim} (process", "exited with status 0 and without ending MPI"),
    "interrupt": ("rank {victim} of {ranks}", "was interrupted (SIGINT)"),
    "hang": ("wait", "process {victim}: computes"),
    "mismatch": ("different collectives", "{name}", "program.mlir:3", "other.mlir:3"),
}


@dataclass(frozen=True)
class FailureCase:
    fault: str
    collective: str
    ranks: int
    victim: int

    def program(self, name: str) -> str:
        region, attributes, result = COLLECTIVES[name]
        n = self.ranks
        group = str([list(range(n))])
        ring = str([[i, (i + 1) % n] for i in range(n)])
        result = result.replace("PART", f"tensor<{8 // n}xf32>").replace("WHOLE", f"tensor<{8 * n}xf32>")
        attributes = attributes.replace("GROUP", group).replace("RING", ring).replace("N", str(n))
        return f"""module attributes {{mhlo.num_replicas = {n} : i32}} {{
func.func @main(%x: tensor<8xf32>) -> {result} {{
  %0 = "stablehlo.{name}"(%x) {region} {{{attributes}}} : (tensor<8xf32>) -> {result}
  return %0 : {result}
}}
}}"""

    def command(self) -> list[str]:
        """What each rank runs."""
        other = "all_gather" if self.collective != "all_gather" else "all_to_all"
        programs = [self.program(self.collective), self.program(other)]
        return [sys.executable, "-c", WORKER, *programs, self.fault, str(self.victim)]

    def is_told(self, screen: str) -> bool:
        """Whether the screen ends with what it should."""
        last = "\n".join(screen.rstrip().splitlines()[-25:])
        names = {"victim": self.victim, "ranks": self.ranks, "name": self.collective}
        return all(word.format(**names) in last for word in WORDS[self.fault])

    def faults(self) -> list[str]:
        """Runs the job; what was not as it should be."""
        marker = uuid.uuid4().hex
        command = [sys.executable, "-m", "launch", "launch", "-n", str(self.ranks), "--", *self.command()]
        environment = {**os.environ, "MARKER": marker, "PYTHONPATH": str(ROOT)}
        job = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            said, screen = job.communicate(timeout=WATCHDOG_SECONDS)
        except subprocess.TimeoutExpired:
            job.kill()
            kill_processes_left(marker)
            return [f"did not end in {WATCHDOG_SECONDS:.0f} s:\n{job.communicate()[1]}"]
        if "going wrong with" not in said:
            return [f"did not come to the failure:\n{screen}"]
        case_faults, shared = [], Path(said.rpartition("going wrong with ")[2].strip())
        if job.returncode != STATUSES.get(self.fault, 1):
            case_faults.append(f"status {job.returncode}")
        if not self.is_told(screen):
            case_faults.append(f"the screen does not end as it should:\n{screen}")
        if left := processes_left(marker):
            case_faults.append(f"processes stay behind: {left}")
        if shared.exists():
            case_faults.append(f"shared memory stays behind: {shared}")
        return case_faults


def processes_left(marker: str) -> list[str]:
    """Processes of the job that still run at the end of all patience."""
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def processes_with(marker: str) -> list[str]:
    """Those whose environment has the marker, which no other job's has."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            alive = "State:\tZ" not in (folder / "status").read_text()
            if alive and f"MARKER={marker}".encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


def kill_processes_left(marker: str) -> None:
    """Kills the job's processes that still run."""
    for process in processes_with(marker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)


def runs_parser(description: str | None, runs: int) -> argparse.ArgumentParser:
    """Reads how many runs are asked for, and from what seed they are drawn."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> int:
    options = runs_parser(__doc__, 100).parse_args()
    rng = random.Random(options.seed)
    bad = 0
    for number in range(options.runs):
        ranks = rng.choice([2, 4, 8])
        case = FailureCase(rng.choice(sorted(WORDS)), rng.choice(sorted(COLLECTIVES)), ranks, rng.randrange(ranks))
        start = time.monotonic()
        faults = case.faults()
        bad += bool(faults)
        seconds = time.monotonic() - start
        print(f"{number + 1:4d} {seconds:5.1f} s  {case}  {'; '.join(faults) or 'ended well'}", flush=True)
    print(f"{options.runs - bad} of {options.runs} ended well")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
