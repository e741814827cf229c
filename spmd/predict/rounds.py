"""Algorithms of collectives carried out message by message, so that each can be timed, whichever MPI chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from collectives.algorithms import Round, Rounds
from collectives.communicator import Communicator
from collectives.operations import CollectivePermute
from spmd.support.arrays import Array

_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class _Message:
    """What is sent `times` times one after another, each time followed by folding `folded` numbers."""

    send: Callable[[Array], object]
    array: Array
    times: int
    folded: int


class RoundsOfMessages:
    """The rounds of an algorithm in `group`, whose every process calls it: messages and folds of floats of 32 bits."""

    def __init__(self, group: Communicator, rounds: Rounds) -> None:
        self._messages = [message for each in rounds for message in _messages(group, each)]
        most = max((message.folded for message in self._messages), default=0)
        self._total, self._part = np.zeros(most, _FLOAT), np.ones(most, _FLOAT)

    def __call__(self) -> None:
        for message in self._messages:
            total, part = self._total[: message.folded], self._part[: message.folded]
            for _ in range(message.times):
                message.send(message.array)
                np.add(total, part, out=total)


def _messages(group: Communicator, each: Round) -> list[_Message]:
    """One message a distance; to every other process in turn where the round has none."""
    size = group.size
    distances = [each.distance] if each.distance else range(1, size)
    times = each.times if each.distance else 1
    count, folded = ceil(each.nbytes / _FLOAT.itemsize), ceil(each.folded / _FLOAT.itemsize)
    messages = []
    for distance in distances:
        pairs = tuple((position, (position + distance) % size) for position in range(size))
        send = group.bind(CollectivePermute((count,), _FLOAT, pairs))
        messages.append(_Message(send, np.ones(count, _FLOAT), times, folded))
    return messages
