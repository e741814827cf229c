"""How the transformer's training step may be laid out over processes: the parameters' shapes, and a table of layouts.

A layout is a mesh and, for each array, the mesh axis that cuts each of its dimensions. Nothing else tells one way of
training from another: the program is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Spec = Sequence[str | None]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Sizes:
    """The sizes of the transformer, and how many sequences of how many tokens a step takes."""

    vocabulary: int = 512
    width: int = 128
    heads: int = 8
    hidden: int = 512
    sequence: int = 64
    batch: int = 16

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shapes by name, in the order in which the step takes them."""
        width, heads = self.width, self.heads
        head = width // heads
        block = {
            "norm1": (width,),
            "q": (width, heads, head),
            "k": (width, heads, head),
            "v": (width, heads, head),
            "o": (heads, head, width),
            "norm2": (width,),
            "up": (width, self.hidden),
            "down": (self.hidden, width),
        }
        return {
            "embedding": (self.vocabulary, width),
            "position": (self.sequence, width),
            **{f"block{number}.{name}": shape for number in range(2) for name, shape in block.items()},
            "norm": (width,),
            "output": (width, self.vocabulary),
        }


SIZES = Sizes()
PARAMETERS = SIZES.parameters()


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


def whole(shape: tuple[int, ...]) -> Spec:
    """Nothing cut."""
    return (None,) * len(shape)


def largest(shape: tuple[int, ...], axis: str) -> Spec:
    """The largest dimension cut along `axis`."""
    chosen = shape.index(max(shape))
    return tuple(axis if index == chosen else None for index in range(len(shape)))


def by_heads(name: str, shape: tuple[int, ...], axis: str) -> Spec:
    """Attention cut by heads, the hidden layer by units, the vocabulary by words; the rest is whole."""
    kind = name.split(".")[-1]
    cut = {"q": 1, "k": 1, "v": 1, "o": 0, "up": 1, "down": 0, "embedding": 0, "output": 1}.get(kind)
    return tuple(axis if index == cut else None for index in range(len(shape)))


def layout(name: str, processes: int) -> Layout:
    """The layout `name` on so many processes: data, fully_sharded, tensor, sequence, or data_tensor."""
    shapes = PARAMETERS.items()
    if name == "data":
        return Layout({"data": processes}, {key: whole(shape) for key, shape in shapes}, ("data", None))
    if name == "fully_sharded":
        return Layout({"data": processes}, {key: largest(shape, "data") for key, shape in shapes}, ("data", None))
    if name == "tensor":
        specs = {key: by_heads(key, shape, "model") for key, shape in shapes}
        return Layout({"model": processes}, specs, (None, None))
    if name == "sequence":
        return Layout({"sequence": processes}, {key: whole(shape) for key, shape in shapes}, (None, "sequence"))
    if name == "data_tensor":
        model = 2 if processes % 2 == 0 else 1
        specs = {key: by_heads(key, shape, "model") for key, shape in shapes}
        return Layout({"data": processes // model, "model": model}, specs, ("data", None))
    raise ValueError(f"no layout {name}: there are {', '.join(NAMES)}")


NAMES = ("data", "fully_sharded", "tensor", "sequence", "data_tensor")
