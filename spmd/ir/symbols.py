"""Symbol ops: functions and modules. Source: specification, "Programs"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spmd.errors import Diagnostic
from spmd.ir.attributes import Attribute, DictAttr, IntegerAttr
from spmd.ir.op import AttributeValue, Op
from spmd.ir.values import Block, Region, Value
from spmd.support.pictures import picture_of
from spmd.types import FunctionType, Type

#: How many types, or functions, a repr shows.
_MOST_SHOWN = 6


class Function(Op, op_name="func.func"):
    """`func.func`."""

    __slots__ = ()
    may_be_value = False  # `type` is the function's type, so an (invalid) result cannot be the op itself

    @property
    def symbol(self) -> str:
        """The name, without `@`."""
        return str(self.attributes["sym_name"])

    @property
    def type(self) -> FunctionType:  # type: ignore[override]  # a function is not a value
        """The types of arguments and results."""
        declared = self.attributes["function_type"]
        assert isinstance(declared, FunctionType)
        return declared

    @property
    def signature(self) -> str:
        """`@main(tensor<2xf32>) -> tensor<2xf32>`, shortened where there are many types."""
        inputs, results = _shortened(self.type.inputs), _shortened(self.type.results)
        return f"@{self.symbol}({inputs}) -> {results if len(self.type.results) == 1 else f'({results})'}"

    def __repr__(self) -> str:
        return f"<function {self.signature}>"

    @property
    def is_public(self) -> bool:
        """Whether other modules may call the function."""
        return bool(self.attributes.get("sym_visibility", "public") == "public")

    @property
    def is_declaration(self) -> bool:
        """Whether the function has no body."""
        return not self.regions or not self.regions[0].blocks

    @property
    def body(self) -> Block:
        """The only block of the body; ValueError for a declaration."""
        return self.regions[0].block

    @property
    def arguments(self) -> tuple[Value, ...]:
        """The arguments of the body."""
        return self.body.arguments

    def with_body(self, body: Block, attributes: Mapping[str, AttributeValue] | None = None) -> Function:
        """A function with the location and attributes of this one (or those given) and the body `body`."""
        function = self.clone((), (), [Region([body])], attributes)
        assert isinstance(function, Function)
        return function

    @property
    def argument_attributes(self) -> list[Mapping[str, Attribute]]:
        """The attribute dictionary of each argument, empty where it has none."""
        return self._dictionaries("arg_attrs", len(self.type.inputs))

    @property
    def result_attributes(self) -> list[Mapping[str, Attribute]]:
        """The attribute dictionary of each result, empty where it has none."""
        return self._dictionaries("res_attrs", len(self.type.results))

    def _dictionaries(self, name: str, count: int) -> list[Mapping[str, Attribute]]:
        dict_attrs: Sequence[DictAttr] = self.attributes.get(name) or ()
        return [entry.entries for entry in dict_attrs] if dict_attrs else [{} for _ in range(count)]


def _shortened(types: Sequence[Type]) -> str:
    shown = [str(type) for type in types[:_MOST_SHOWN]]
    if len(types) > _MOST_SHOWN:
        shown.append(f"... {len(types)} in all")
    return ", ".join(shown)


class Module(Op, op_name="builtin.module"):
    """`builtin.module`: a table of symbols."""

    __slots__ = ("_advice",)
    _advice: tuple[Diagnostic, ...]

    @property
    def advice(self) -> tuple[Diagnostic, ...]:
        """Constraints of the specification that the literals of the module's text break, though MLIR accepts them."""
        return getattr(self, "_advice", ())

    @advice.setter
    def advice(self, advice: tuple[Diagnostic, ...]) -> None:
        self._advice = advice

    @property
    def body(self) -> Block:
        """The block of the module's ops."""
        return self.regions[0].block

    @property
    def symbol(self) -> str | None:
        """The module's name, without `@`; None where it has none."""
        return self.attributes.get("sym_name")

    @property
    def functions(self) -> list[Function]:
        """The functions at the top level, in order."""
        return [op for op in self.body.ops if isinstance(op, Function)]

    @property
    def symbols(self) -> dict[str, Op]:
        """Ops of this module that have a symbol, by that symbol."""
        return {op.attributes["sym_name"]: op for op in self.body.ops if op.attributes.get("sym_name") is not None}

    def with_ops(self, ops: Iterable[Op], discardable: Mapping[str, Attribute] | None = None) -> Module:
        """A module of `ops` with the name, location and attributes of this one (or these discardable attributes)."""
        module = self.clone((), (), [Region([Block((), ops)])])
        assert isinstance(module, Module)
        if discardable is not None:
            module.discardable = discardable
        return module

    def _repr_html_(self) -> str:
        return picture_of(self)

    def __repr__(self) -> str:
        name = f" @{self.symbol}" if self.symbol else ""
        functions = self.functions
        shown = [function.signature for function in functions if function.is_public][:_MOST_SHOWN]
        if len(functions) > len(shown):
            shown.append(f"{len(functions)} functions in all")
        counts = [self.discardable.get(f"mhlo.num_{what}") for what in ("replicas", "partitions")]
        grid = "x".join(str(count.value) if isinstance(count, IntegerAttr) else "1" for count in counts)
        return f"<module{name}: {'; '.join(shown) or 'no functions'}{f' on a {grid} grid' if any(counts) else ''}>"

    def function(self, name: str) -> Function:
        """The function `name`; KeyError, which lists the module's functions, when it has none of that name."""
        for function in self.functions:
            if function.symbol == name:
                return function
        known = ", ".join("@" + function.symbol for function in self.functions) or "none"
        raise KeyError(f"no function @{name} in the module; its functions: {known}")
