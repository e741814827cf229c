"""Whatever the partitioner makes in a test is verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import partitioner
import spmd
from partitioner import Partitioned

_partition = partitioner.partition


def _verified(*arguments: Any, **options: Any) -> Partitioned:
    parts = _partition(*arguments, **options)
    spmd.verify(parts.module)
    return parts


@pytest.fixture(autouse=True)
def made_programs_verify(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(partitioner, "partition", _verified)
    yield
