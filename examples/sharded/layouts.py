"""How the transformer's training step may be laid out over processes: the parameters' shapes, and a table of layouts.

A layout is a mesh and, for each array, the mesh axis that cuts each of its dimensions. Nothing else tells one way of
training from another: the program is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

VOCABULARY, WIDTH, HEADS, HIDDEN, SEQUENCE, BATCH = 512, 128, 8, 512, 64, 16
HEAD = WIDTH // HEADS

_BLOCK = {
    "norm1": (WIDTH,),
    "q": (WIDTH, HEADS, HEAD),
    "k": (WIDTH, HEADS, HEAD),
    "v": (WIDTH, HEADS, HEAD),
    "o": (HEADS, HEAD, WIDTH),
    "norm2": (WIDTH,),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
}
#: Shapes by name, in the order in which the step takes them.
PARAMETERS: dict[str, tuple[int, ...]] = {
    "embedding": (VOCABULARY, WIDTH),
    "position": (SEQUENCE, WIDTH),
    **{f"block{block}.{name}": shape for block in range(2) for name, shape in _BLOCK.items()},
    "norm": (WIDTH,),
    "output": (WIDTH, VOCABULARY),
}

Spec = Sequence[str | None]


@dataclass(frozen=True)
class Layout:
    """A mesh, the spec of each parameter (its moments have the same), and that of tokens and targets."""

    mesh: dict[str, int]
    parameters: dict[str, Spec]
    tokens: Spec

    @property
    def arguments(self) -> list[Spec]:
        """The specs of all arguments of the step."""
        return [*self.parameters.values()] * 3 + [self.tokens] * 2

    @property
    def results(self) -> list[Spec]:
        """The specs of all results of the step: the loss is whole."""
        return [(), *[*self.parameters.values()] * 3]


def _whole(shape: tuple[int, ...]) -> Spec:
    return (None,) * len(shape)


def _largest(shape: tuple[int, ...], axis: str) -> Spec:
    """The largest dimension cut along `axis`."""
    chosen = shape.index(max(shape))
    return tuple(axis if index == chosen else None for index in range(len(shape)))


def _by_heads(name: str, shape: tuple[int, ...], axis: str) -> Spec:
    """Attention cut by heads, the hidden layer by units, the vocabulary by words; the rest is whole."""
    kind = name.split(".")[-1]
    cut = {"q": 1, "k": 1, "v": 1, "o": 0, "up": 1, "down": 0, "embedding": 0, "output": 1}.get(kind)
    return tuple(axis if index == cut else None for index in range(len(shape)))


def layout(name: str, processes: int) -> Layout:
    """The layout `name` on so many processes: data, fully_sharded, tensor, sequence, or data_tensor."""
    shapes = PARAMETERS.items()
    if name == "data":
        return Layout({"data": processes}, {key: _whole(shape) for key, shape in shapes}, ("data", None))
    if name == "fully_sharded":
        return Layout({"data": processes}, {key: _largest(shape, "data") for key, shape in shapes}, ("data", None))
    if name == "tensor":
        specs = {key: _by_heads(key, shape, "model") for key, shape in shapes}
        return Layout({"model": processes}, specs, (None, None))
    if name == "sequence":
        return Layout({"sequence": processes}, {key: _whole(shape) for key, shape in shapes}, (None, "sequence"))
    if name == "data_tensor":
        model = 2 if processes % 2 == 0 else 1
        specs = {key: _by_heads(key, shape, "model") for key, shape in shapes}
        return Layout({"data": processes // model, "model": model}, specs, ("data", None))
    raise ValueError(f"no layout {name}: there are {', '.join(NAMES)}")


NAMES = ("data", "fully_sharded", "tensor", "sequence", "data_tensor")
