"""Programs with shardings and symbolic sizes: partitioned and compiled for the shapes of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.compiler.pipeline.dynamic import is_dynamic
from spmd.compiler.pipeline.options import CompileOptions, Options
from spmd.errors import ExecutionError
from spmd.ir import Function, Module
from spmd.runtime.arguments import check_count
from spmd.runtime.executable import Executable
from spmd.runtime.process import Process
from spmd.support.arrays import Argument, Array, Source
from spmd.types import TensorType, Type

Shape = tuple[int, ...]
#: Returns the executable for global arguments of these types.
Specialize = Callable[[Sequence[Type]], Executable]
#: Maximum attempts to infer global shapes from blocks, until propagation agrees with them.
_MOST_TRIES = 4


def is_symbolic(function: Function) -> bool:
    """Return whether sizes of the function's arguments are unknown at compile time."""
    return any(map(is_dynamic, function.type.inputs))


class SymbolicExecutable(Executable):
    """An executable per combination of shapes, compiled at its first use.

    `shard` takes the global arrays and makes the blocks that a call takes; if called with other blocks, the global
    sizes are those of the blocks times the number of parts that the program's shardings divide dimensions into.
    `in_types`, `out_types` and `module` are those of the global program.
    """

    def __init__(
        self, module: Module, function: Function, options: Options, specialize: Specialize, requested: CompileOptions
    ) -> None:
        """Keep `requested`, the given options, by which an unpickled executable is compiled again."""
        super().__init__(module, function, _never, options, frozenset(), recompile=lambda: _never)
        self.requested = requested
        self._specialize = specialize
        self._of_types: dict[tuple[Type, ...], Executable] = {}
        self._of_blocks: dict[tuple[Shape, ...], Executable] = {}
        self._of_results: dict[tuple[Shape, ...], Executable] = {}

    @property
    def communicates(self) -> bool:
        """Always True: programs with shardings may communicate."""
        return True

    def run(self, process: Process, arrays: Sequence[Argument]) -> tuple[Array, ...]:
        return self.for_blocks(arrays).run(process, arrays)

    def shard(self, *arrays: Source) -> tuple[Array, ...]:
        check_count(self.function, arrays, self.in_types, self._location)
        if any(callable(array) for array in arrays):
            raise ExecutionError(
                f"@{self.function} takes its sizes from its arguments: arrays are needed, not callables"
            )
        return self.for_shapes(_shapes(arrays)).shard(*arrays)

    def unshard(self, *results: Array) -> tuple[Array, ...]:
        sized = self._of_results.get(_shapes(results))
        if sized is None:
            raise ExecutionError(
                f"no call of @{self.function} has returned results of shapes {_listed(_shapes(results))}"
            )
        return sized.unshard(*results)

    def for_globals(self, arrays: Sequence[Argument]) -> Executable:
        return self.for_shapes(_shapes(arrays))

    def for_shapes(self, shapes: Sequence[Shape]) -> Executable:
        """Return the executable for global arguments of these shapes."""
        check_count(self.function, shapes, self.in_types, self._location)
        types = tuple(map(self._sized, range(len(shapes)), self.in_types, shapes))
        if types not in self._of_types:
            sized = self._of_types[types] = self._specialize(types)
            self._of_blocks.setdefault(_type_shapes(sized.in_types), sized)
            self._of_results.setdefault(_type_shapes(sized.out_types), sized)
        return self._of_types[types]

    def for_blocks(self, arrays: Sequence[Argument]) -> Executable:
        """Return the executable that takes these blocks of global arguments."""
        check_count(self.function, arrays, self.in_types, self._location)
        blocks = _shapes(arrays)
        sized = self._of_blocks.get(blocks)
        if sized is None:
            sized = self._of_blocks[blocks] = self._inferred(blocks)
        return sized

    def _inferred(self, blocks: tuple[Shape, ...]) -> Executable:
        # Loaded late, as by the compiler.
        from partitioner.shapes import annotated_block_counts, block_counts, global_shape

        cuts = annotated_block_counts(self.module, self.grid, self.function)
        for _ in range(_MOST_TRIES):
            shapes = [
                global_shape(block, type, cut) if isinstance(type, TensorType) and len(block) == type.rank else block
                for block, type, cut in zip(blocks, self.in_types, cuts, strict=True)
            ]
            sized = self.for_shapes(shapes)
            if _type_shapes(sized.in_types) == blocks:
                return sized
            shardings = [layout.sharding for layout in sized.in_shardings or ()]
            cuts = [block_counts(sharding, len(block)) for sharding, block in zip(shardings, blocks, strict=True)]
        text = f"arguments of shapes {_listed(blocks)} are not blocks of common global arrays, which shard makes"
        raise ExecutionError(f"@{self.function}: {text}", self._location)

    def _sized(self, index: int, type: Type, shape: Shape) -> Type:
        if not isinstance(type, TensorType):
            return type
        known = zip(type.shape, shape, strict=False)
        if len(shape) != type.rank or any(size not in (None, extent) for size, extent in known):
            raise ExecutionError(f"argument {index} of @{self.function}: {type} is needed, got shape {shape}")
        return type.with_shape(shape)


def _never(process: Process, *values: object) -> tuple[Array, ...]:
    raise NotImplementedError("a program with symbolic sizes must be specialized before it runs")


def _shapes(arrays: Sequence[object]) -> tuple[Shape, ...]:
    return tuple(tuple(getattr(array, "shape", ())) for array in arrays)


def _type_shapes(types: Sequence[Type]) -> tuple[Shape, ...]:
    return tuple(type.static_shape if isinstance(type, TensorType) and type.is_static else () for type in types)


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes))
