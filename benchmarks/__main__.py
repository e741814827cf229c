"""``python -m benchmarks``: programs of a folder; ``train``, ``collectives``, ``simulation``, ``peers``, ``ops``, ...

Every contestant gets the same number of threads (``--threads``, default 1) and all instructions of the processor
(``--held``: only those that the environment restricts BLAS to). The CPU affinity and environment variables are set
here, before any numerical library is loaded.
"""

import argparse
import importlib
import sys

from benchmarks import threads

COMMANDS = {
    "programs": "benchmarks.programs",
    "peers": "benchmarks.peers.run",
    "ops": "benchmarks.ops",
    "language": "benchmarks.language",
    "train": "benchmarks.train",
    "collectives": "benchmarks.collectives",
    "simulation": "benchmarks.simulation",
    "sharding": "benchmarks.sharding",
    "calls": "benchmarks.calls",
    "hlo": "benchmarks.hlo",
}
#: Benchmarks that run in this process; the others start ranks, or are ranks, and set threads themselves.
LIMITED = ("programs", "peers", "ops", "language", "simulation", "sharding")


def main() -> int:
    argv = sys.argv[1:]
    name = argv.pop(0) if argv and argv[0] in COMMANDS else "programs"
    if "--held" in argv:
        argv.remove("--held")
    elif "--as-rank" not in argv:  # ranks inherit the environment of the command that started them
        threads.unbind()
    if name in LIMITED:
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("--threads", type=int, default=1)
        known, argv = parser.parse_known_args(argv)
        threads.limit(known.threads)
    return int(importlib.import_module(COMMANDS[name]).run(argv))


if __name__ == "__main__":
    sys.exit(main())
