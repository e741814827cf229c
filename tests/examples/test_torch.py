"""The PyTorch page: its snippet trains."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
try:
    pytest.importorskip("torchax")
except AttributeError as error:  # one that names ops which this PyTorch has no more
    pytest.skip(f"torchax does not import beside this PyTorch: {error}", allow_module_level=True)
PAGE = (Path(__file__).parents[2] / "examples" / "jax" / "README.md").read_text()


def test_a_module_of_pytorch_trains() -> None:
    (snippet,) = [part for part in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import torch\n" in part]
    scope: dict[str, object] = {}
    exec(snippet, scope)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 8)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    weights, losses = scope["weights"], []
    for _ in range(20):
        loss, weights = scope["step"](weights, x, y)  # type: ignore[operator]
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 2
