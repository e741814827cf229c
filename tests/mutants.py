"""Changes, drawn from a seed, of files and of what they hold: as damage or malice may make them."""

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

#: What stands where another value was.
ODD: list[Any] = [
    None, True, 0, -1, 1, 10**30, 2**63, "", "x", "9" * 5000, [], {}, [1], {"a": 1}, 1.5, float("nan"), float("inf"),
    [[1] * 3] * 3, "send", "recv ->", "send a->b", "1->", "all_reduce",
]  # fmt: skip
NUMBERS = [
    "100000x100000", "10000000000", "4294967296", "2147483648", "18446744073709551615", "9223372036854775807", "-1",
    "1000000", "0", "1x0", "65", "3", "9" * 5000,
]  # fmt: skip


def mutate_values(value: Any, random: Random) -> None:
    """Change up to four parts of dicts and lists of plain values."""
    for _ in range(random.choice([1, 1, 2, 4])):
        places = list(_places(value))
        if not places:
            return
        holder, key = random.choice(places)
        kind = random.randrange(4)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = random.choice(ODD)
        elif kind == 2:
            other, at = random.choice(places)
            holder[key] = json.loads(json.dumps(other[at]))
        else:
            old = holder[key]
            holder[key] = -old if isinstance(old, int | float) else [old]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """Return `data` with up to five bytes or runs of bytes changed, removed, added or repeated."""
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 5])):
        at, kind = random.randrange(len(changed) + 1), random.randrange(4)
        if kind == 0:
            changed[at : at + 1] = random.randbytes(1)
        elif kind == 1:
            del changed[at : at + random.randrange(1, 9)]
        elif kind == 2:
            changed[at:at] = random.randbytes(random.randrange(1, 6))
        else:
            changed[at:at] = changed[random.randrange(len(changed) + 1) :][: random.randrange(1, 30)]
    return bytes(changed)


def mutated_text(text: str, random: Random) -> str:
    """Return `text` with up to three of its words removed, repeated, exchanged or replaced, or numbers by odd ones."""
    words = re.findall(r"[\w.%@#!-]+|\s+|.", text, re.DOTALL)
    for _ in range(random.choice([1, 1, 2, 3])):
        at, kind = random.randrange(len(words)), random.randrange(6)
        if kind == 0:
            words[at : at + random.choice([1, 1, 2, 4, 20])] = [""]
        elif kind == 1:
            words[at] = random.choice(words)
        elif kind == 2:
            words.insert(at, random.choice(words))
        elif kind == 3:
            words[at:at] = words[random.randrange(len(words)) :][: random.choice([1, 3, 10, 40])]
        else:
            numbers = [place for place, word in enumerate(words) if re.search(r"\d", word)] or [at]
            at = random.choice(numbers)
            words[at] = re.sub(r"\d+", lambda _: random.choice(NUMBERS), words[at], count=1)
    return "".join(words)
