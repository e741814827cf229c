"""Channels: point-to-point transfers by channel id, between ends that are found when the grid starts.

A transfer with ``source_target_pairs`` knows its ends. One without (a transfer by way of the host) goes from the
process that sends on the channel to the one that receives from it. Where the same processes do both, as in one
program run by all, each process's host gives back what it was sent.

Transfers of a channel arrive in the order of their sending; a send never waits for its receiver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collectives.errors import CommunicationError
from collectives.states import ranks_text


class Channels:
    """Which process is at the other end of each channel, as seen from any process."""

    def __init__(self, sends: Sequence[Iterable[int]], receives: Sequence[Iterable[int]]) -> None:
        """``sends[rank]`` and ``receives[rank]``: the channels that the process's program uses without pairs."""
        self._senders = _by_channel(sends)
        self._receivers = _by_channel(receives)

    def target(self, channel: int, rank: int) -> int:
        """To whom ``rank`` sends on ``channel``. CommunicationError where nobody, or more than one, receives."""
        return self._other(channel, rank, self._senders, self._receivers, "sends on", "receives from")

    def source(self, channel: int, rank: int) -> int:
        """From whom ``rank`` receives on ``channel``. CommunicationError where nobody, or more than one, sends."""
        return self._other(channel, rank, self._receivers, self._senders, "receives from", "sends on")

    def faults(self) -> list[str]:
        """What is wrong with channels whichever process looks: ends missing, or more than one."""
        texts = []
        for channel in sorted({*self._senders, *self._receivers}):
            try:
                for rank in self._senders.get(channel, ()):
                    self.target(channel, rank)
                for rank in self._receivers.get(channel, ()):
                    self.source(channel, rank)
            except CommunicationError as error:
                texts.append(str(error))
        return texts

    @staticmethod
    def _other(
        channel: int,
        rank: int,
        own: Mapping[int, list[int]],
        others: Mapping[int, list[int]],
        does: str,
        should: str,
    ) -> int:
        mine, theirs = own.get(channel, [rank]), others.get(channel, [])
        if len(theirs) == 1 and len(mine) == 1:
            return theirs[0]
        if mine == theirs:
            return rank
        if not theirs:
            raise CommunicationError(f"process {rank} {does} channel {channel}, and no process {should} it")
        raise CommunicationError(
            f"channel {channel} has no source_target_pairs and more than two ends: "
            f"{ranks_text(mine)} {does} it, {ranks_text(theirs)} {should} it"
        )


def _by_channel(channels: Sequence[Iterable[int]]) -> dict[int, list[int]]:
    ranks: dict[int, list[int]] = {}
    for rank, used in enumerate(channels):
        for channel in set(used):
            ranks.setdefault(channel, []).append(rank)
    return ranks
