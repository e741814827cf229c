"""Disjoint sets of numbers that are merged (union-find)."""


class DisjointSets:
    """Sets of the numbers 0, 1, ...; the least number represents its set."""

    def __init__(self) -> None:
        self.parents: list[int] = []

    def new(self) -> int:
        """Return a new number, alone in its set."""
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    def find(self, number: int) -> int:
        """Return the representative of the set of `number`."""
        while self.parents[number] != number:
            self.parents[number] = self.parents[self.parents[number]]
            number = self.parents[number]
        return number

    def join(self, first: int, second: int) -> None:
        """Merge the sets of two numbers."""
        first, second = self.find(first), self.find(second)
        self.parents[max(first, second)] = min(first, second)
