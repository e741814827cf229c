"""Python's standard library as text to learn from: its sources, in words of a small vocabulary.

A word is a byte, or one of the most frequent pieces of sources: an identifier with the space before it, an operator, a
line's break with the indentation behind it.
"""

import re
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np

_PIECES = re.compile(rb"\n *| ?[A-Za-z]+|_+| ?[0-9]|\s+| ?[^\w\s]+|.", re.DOTALL)
VOCABULARY = 2048
#: One source of so many is held out.
HELD_OUT = 20


def sources():
    """Return the bytes of the library's modules in order of their names, without its tests and what was installed."""
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"}
    paths = sorted(path for path in root.rglob("*.py") if left_out.isdisjoint(path.relative_to(root).parts))
    return [b"\0" + path.read_bytes() for path in paths]


class Vocabulary:
    """The 256 bytes, then pieces, by number."""

    def __init__(self, pieces):
        self.words = [bytes([byte]) for byte in range(256)] + [*pieces]
        self._numbers = {word: (number,) for number, word in enumerate(self.words)}

    @classmethod
    def of(cls, texts):
        """Return the vocabulary whose pieces save the most bytes of these texts."""
        counts = Counter(piece for text in texts for piece in _PIECES.findall(text))
        saved = {piece: count * (len(piece) - 1) for piece, count in counts.items() if len(piece) > 1}
        return cls(sorted(saved, key=lambda piece: (-saved[piece], piece))[: VOCABULARY - 256])

    def encode(self, text):
        """Return the numbers of a text's words; a piece that is no word is spelled in bytes."""
        known = self._numbers
        return np.array([number for piece in _PIECES.findall(text) for number in known.get(piece, piece)], np.int32)

    def decode(self, numbers):
        return b"".join(self.words[number] for number in numbers).decode(errors="replace")

    @property
    def sizes(self):
        """The bytes of each word."""
        return np.array([len(word) for word in self.words], np.float32)


def corpus():
    """Return the vocabulary, the words to learn from, and those of the held-out sources."""
    texts = sources()
    learned = [text for number, text in enumerate(texts) if number % HELD_OUT]
    vocabulary = Vocabulary.of(learned)
    held_out = b"".join(texts[::HELD_OUT])
    return vocabulary, vocabulary.encode(b"".join(learned)), vocabulary.encode(held_out)
