"""The GPT example: its vocabulary spells every text, and it learns, goes on, and writes on ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "gpt"


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return pytest.importorskip("corpus")


def test_words_spell_the_text_they_were_made_of_and_any_other(corpus: ModuleType) -> None:
    text = b"def read(self, path):\n        return self.open(path)\n" * 3
    vocabulary = corpus.Vocabulary.of([text])
    numbers = vocabulary.encode(text)
    assert vocabulary.decode(numbers) == text.decode() and len(numbers) < len(text) // 2
    assert vocabulary.sizes[numbers].sum() == len(text)
    other = "x = '\N{SNOWMAN}\t\\'"
    assert vocabulary.decode(vocabulary.encode(other.encode())) == other


@pytest.mark.slow
def test_it_learns_goes_on_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("flax")
    first, second = (train(tmp_path, ranks, steps) for ranks, steps in ((2, 3), (1, 5)))
    assert "from step 0" in first and "from step 3" in second
    nats = [float(re.search(r"([\d.]+) nats a byte", printed)[1]) for printed in (first, second)]  # type: ignore[index]
    assert nats[1] < nats[0] < 8
    written = run([sys.executable, str(FOLDER / "write.py"), "def f(", "--words", "5", "--folder", str(tmp_path)])
    assert written.startswith("def f(")


def train(folder: Path, ranks: int, steps: int) -> str:
    launch = [
        sys.executable,
        "-m",
        "launch",
        "launch",
        "-n",
        str(ranks),
        "--",
        sys.executable,
        str(FOLDER / "train.py"),
    ]
    return run([*launch, "--steps", str(steps), "--folder", str(folder)])


def run(command: list[str]) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": "spmd", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
