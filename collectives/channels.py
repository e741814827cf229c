"""Channels: point-to-point transfers by channel id, whose ends are resolved when the grid starts.

A transfer with ``source_target_pairs`` states its ends. One without (a host transfer) connects the process that sends
on the channel with the one that receives from it. If the same processes do both, as in a program that all of them run,
each process receives its own data back from its host.

Transfers of a channel arrive in the order sent; a send does not wait for its receiver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collectives.errors import CommunicationError
from collectives.states import ranks_text


class Channels:
    """The peer of each process on each channel."""

    def __init__(self, sends: Sequence[Iterable[int]], receives: Sequence[Iterable[int]]) -> None:
        """Record the channels that each process's program uses without pairs: ``sends[rank]``, ``receives[rank]``."""
        self._senders = _by_channel(sends)
        self._receivers = _by_channel(receives)

    def target(self, channel: int, rank: int) -> int:
        """Return the rank that ``rank`` sends to on ``channel``; CommunicationError unless exactly one receives."""
        return self._other(channel, rank, self._senders, self._receivers, "sends on", "receives from")

    def source(self, channel: int, rank: int) -> int:
        """Return the rank that ``rank`` receives from on ``channel``; CommunicationError unless exactly one sends."""
        return self._other(channel, rank, self._receivers, self._senders, "receives from", "sends on")

    def faults(self) -> list[str]:
        """Return the errors of all channels, seen from any process: missing or ambiguous ends."""
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
