"""The named points of writing a checkpoint, at which ranks of elastic jobs are killed (`tests/elastic/worker.py`)."""

#: How often each kind of rank comes to a point of each kind while it writes one checkpoint without losses: at once
#: (`--wait`), or in a thread. Rank 0 writes the manifest; the others hand in receipts where they write in threads.
PASSES = {
    ("wait", "first"): {"exchange": 10, "fsync": 4, "rename": 1},
    ("wait", "other"): {"exchange": 10, "fsync": 1, "rename": 0},
    ("thread", "first"): {"exchange": 8, "fsync": 4, "rename": 1},
    ("thread", "other"): {"exchange": 8, "fsync": 1, "rename": 1},
}


def points(how: str, rank: int) -> list[str]:
    """Return all points of one checkpoint on a rank, as moments of the worker's faults: ``before-fsync:2``."""
    passes = PASSES[how, "other" if rank else "first"]
    return [
        f"{when}-{what}:{number}"
        for what, count in passes.items()
        for number in range(1, count + 1)
        for when in ("before", "after")
    ]


def options(how: str) -> list[str]:
    """Return the worker's options to write so."""
    return ["--wait"] * (how == "wait")
