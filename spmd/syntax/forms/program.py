"""Modules, functions, constants, loops and reductions: forms of whole ops."""

from __future__ import annotations

from sys import intern

from spmd import types as t
from spmd.dialects import core
from spmd.dialects.core import OpDef, Trait
from spmd.errors import Diagnostic, ParseError
from spmd.ir import Block, Function, Op, Region
from spmd.ir.attributes import DictAttr
from spmd.syntax.directives import WholeForm, custom
from spmd.syntax.elements import type_sequence
from spmd.syntax.op_parser import OperationParser, Parameter
from spmd.syntax.operand_parser import OperationState
from spmd.syntax.printer import Printer

_VISIBILITIES = ("public", "private", "nested")
_NO_ENTRIES = DictAttr({})


def _visibility(op: Op) -> str:
    visibility = op.attributes.get("sym_visibility")
    return f" {visibility}" if visibility else ""


def _attributes(printer: Printer, op: Op, shown: set[str]) -> str:
    """Return ` attributes {...}` of all but those `shown` elsewhere in the form; nothing when there are none."""
    dictionary = printer.dictionary(op, shown)
    return f" attributes {dictionary}" if dictionary else ""


@custom("Module")
class ModuleForm(WholeForm):
    """`module @name attributes {...} {...}`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if parser.tokens[parser.position] in _VISIBILITIES:
            state.attributes["sym_visibility"] = intern(parser.parse_keyword())
        if parser.tokens[parser.position][:1] == "@":
            state.attributes["sym_name"] = parser.parse_symbol()
        if parser.consume_if("attributes"):
            parser.parse_entries(state)
        region = parser.parse_region(isolated=True, dialect="builtin")
        if not region.blocks:
            region.blocks = (Block(),)
        state.regions += (region,)
        state.result_types = ()

    def print(self, printer: Printer, op: Op) -> str:
        if op.results or op.operands or len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
            return printer.decline()
        name = op.attributes.get("sym_name")
        text = _visibility(op)
        text += f" {printer.symbol(name)}" if name is not None else ""
        text += _attributes(printer, op, {"sym_name", "sym_visibility"})
        return f"{text} {printer.region(op.regions[0], isolated=True, dialect='builtin', may_be_empty=True)}"


@custom("Func")
class FunctionForm(WholeForm):
    """`func.func visibility @name(%argument: type {...}) -> (type {...}) attributes {...} {...}`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if parser.consume_if("."):  # `func . func`, three tokens in the specification's grammar
            parser.expect("func")
        if parser.tokens[parser.position] in _VISIBILITIES:
            state.attributes["sym_visibility"] = intern(parser.parse_keyword())
        state.attributes["sym_name"] = parser.parse_symbol()
        arguments, argument_attributes, named = self._arguments(parser)
        results: list[t.Type] = []
        result_attributes: list[DictAttr] = []
        if parser.consume_if("->"):
            self._results(parser, results, result_attributes)
        state.attributes["function_type"] = t.FunctionType(tuple(one.type for one in arguments), tuple(results))
        if any(entry.entries for entry in argument_attributes):
            state.attributes["arg_attrs"] = tuple(argument_attributes)
        if any(entry.entries for entry in result_attributes):
            state.attributes["res_attrs"] = tuple(result_attributes)
        if parser.consume_if("attributes"):
            parser.parse_entries(state)
        state.result_types = ()
        if parser.tokens[parser.position] == "{":
            if not named and arguments:
                parser.expected("arguments with names, for a function with a body")
            region = parser.parse_region(arguments, isolated=True, dialect="func")
            if not region.blocks:
                parser.fail_number(state.location.number, "expected a non-empty function body")
            state.regions += (region,)
        else:
            state.regions += (Region(),)

    def _arguments(self, parser: OperationParser) -> tuple[list[Parameter], list[DictAttr], bool]:
        """Parse the arguments; return them, their attributes, and whether they have names."""
        parser.expect("(")
        declared: list[Parameter] = []
        attributes: list[DictAttr] = []
        named = parser.tokens[parser.position][:1] == "%"
        for _ in parser.items(")"):
            parser.ready()
            one = parser.parse_argument() if named else Parameter("", parser.parse_type())
            attributes.append(self._entries(parser))
            behind = parser.tokens[parser.position][:3] == "loc"
            declared.append(one._replace(location=parser.parse_location()) if behind else one)
        return declared, attributes, named

    def _entries(self, parser: OperationParser) -> DictAttr:
        """Parse `{...}`, or nothing."""
        if parser.tokens[parser.position] != "{":
            return _NO_ENTRIES
        return DictAttr(parser.shared.attributes(None, parser.parse_dictionary()))

    def _results(self, parser: OperationParser, results: list[t.Type], attributes: list[DictAttr]) -> None:
        """Parse types with or without parentheses; without, MLIR has one type and the specification several."""
        if not parser.at("("):
            results.append(parser.parse_type())
            while parser.consume_if(","):
                results.append(parser.parse_type())
            return
        parser.position += 1
        for _ in parser.items(")"):
            parser.ready()
            results.append(parser.parse_type())
            attributes.append(self._entries(parser))

    def print(self, printer: Printer, op: Op) -> str:
        if not isinstance(op, Function) or len(op.regions) != 1 or op.operands or op.results:
            return printer.decline()
        text = f"{_visibility(op)} {printer.symbol(op.symbol)}("
        declaration = op.is_declaration
        header, body = "", ""
        if not declaration:
            if [a.type for a in op.regions[0].blocks[0].arguments] != list(op.type.inputs):
                return printer.decline()
            header, body = printer.function_body(op)
        else:
            parts = zip(op.type.inputs, op.argument_attributes, strict=True)
            header = ", ".join(f"{printer.type(type)}{printer.entries(attributes)}" for type, attributes in parts)
        text += header + ")" + self._result_text(printer, op)
        named = {"sym_name", "function_type", "sym_visibility", "arg_attrs", "res_attrs"}
        text += _attributes(printer, op, named)
        return text if declaration else f"{text} {body}"

    def _result_text(self, printer: Printer, op: Function) -> str:
        results = op.type.results
        if not results:
            return ""
        pairs = zip(results, op.result_attributes, strict=True)
        texts = [f"{printer.type(type)}{printer.entries(attributes)}" for type, attributes in pairs]
        if len(texts) == 1 and not op.result_attributes[0] and not isinstance(results[0], t.FunctionType):
            return f" -> {texts[0]}"
        return f" -> ({', '.join(texts)})"


@custom("Constant")
class ConstantForm(WholeForm):
    """`stablehlo.constant dense<...> : type`, or with the parts of the generic form after the name."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if parser.consume_if("("):
            parser.expect(")")
            if parser.consume_if("<"):
                parser.parse_entries(state)
                parser.expect(">")
            if parser.tokens[parser.position] == "{":
                parser.parse_entries(state)
            parser.expect(":")
            state.result_types = parser.parse_function_type().results
            return
        if parser.tokens[parser.position] == "{":
            parser.parse_entries(state)
        position = parser.position
        value = parser.parse_attribute()
        type = getattr(value, "type", None)
        if not isinstance(type, t.TensorType):
            parser.fail("expected elements such as dense<...> : tensor<...>", position)
        parser.file(state, "value", value)
        state.result_types = (type,)

    def print(self, printer: Printer, op: Op) -> str:
        value = op.attributes.get("value")
        if value is None or len(op.results) != 1 or value.type is not op.results[0].type:
            return printer.decline()
        dictionary = printer.dictionary(op, {"value"})
        return (f" {dictionary} " if dictionary else " ") + printer.attribute(value)


@custom("While")
class WhileForm(WholeForm):
    """`stablehlo.while(%a = %b) : types attributes {...} cond {...} do {...}`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        parser.expect("(")
        names: list[str] = []
        for _ in parser.items(")"):
            name = parser.tokens[parser.position]
            if name[:1] != "%" or "#" in name or ":" in name:
                parser.expected("an SSA name")
            names.append(name)
            parser.position += 1
            parser.expect("=")
            parser.parse_operand(state)
        types: list[t.Type] = []
        if names:
            parser.expect(":")
            types = type_sequence(parser)
        state.operand_types = state.result_types = types
        parser.resolve(state)
        if parser.consume_if("attributes"):
            parser.parse_entries(state)
        arguments = [Parameter(name, type) for name, type in zip(names, types, strict=True)]
        for keyword in ("cond", "do"):
            parser.expect(keyword)
            state.regions += (parser.parse_region(arguments),)

    def print(self, printer: Printer, op: Op) -> str:
        types = op.operand_types
        if len(op.regions) != 2 or op.result_types != types or any(len(region.blocks) != 1 for region in op.regions):
            return printer.decline()
        if any([a.type for a in region.block.arguments] != types for region in op.regions):
            return printer.decline()
        if any(printer.located(argument) for region in op.regions for argument in region.block.arguments):
            return printer.decline()
        named = printer.enter_arguments(op.regions[1].block, "iterArg")
        cond, do = (printer.region(region, arguments=named) for region in op.regions)
        pairs = ", ".join(f"{a} = {printer.name(b)}" for a, b in zip(named, op.operands, strict=True))
        text = f"({pairs})" + (f" : {printer.types(types)}" if types else "")
        text += _attributes(printer, op, set())
        return f"{text}\n{printer.indentation}cond {cond} do {do}"


@custom("Reduce")
class ReduceForm(WholeForm):
    """`stablehlo.reduce(%x init: %y) applies op across dimensions = [0] : type`, or with `reducer(...) (...) {...}`."""

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        inits: list[str] = []
        while parser.consume_if("("):
            parser.parse_operand(state)
            parser.expect("init")
            parser.expect(":")
            init = parser.tokens[parser.position]
            if init[:1] != "%":
                parser.expected("an SSA operand")
            inits.append(init)
            parser.position += 1
            parser.expect(")")
            if not parser.consume_if(","):
                break
        state.operands += inits
        inner = self._applied(parser) if parser.consume_if("applies") else None
        parser.expect("across")
        parser.expect("dimensions")
        parser.expect("=")
        state.attributes["dimensions"] = parser.parse_integer_list()
        if parser.tokens[parser.position] == "{":
            parser.parse_entries(state)
        parser.expect(":")
        signature = parser.parse_function_type()
        state.operand_types, state.result_types = signature.inputs, signature.results
        if inner is None:
            parser.resolve(state)
            self._reducer(parser, state)
        else:
            state.regions = self._applying(parser, state, inner, signature)

    def _applied(self, parser: OperationParser) -> OpDef:
        position = parser.position
        name = parser.parse_keyword("an operation name")
        definition = core.OPS.get(name)
        if definition is None or definition.dialect != self.definition.dialect or not _is_binary(definition):
            parser.fail(
                f"expected the inner-op to be a commutative binary-op from the {self.definition.dialect} dialect, "
                f"with zero region, producing single result; got {name}", position
            )  # fmt: skip
        return definition

    def _applying(
        self, parser: OperationParser, state: OperationState, inner: OpDef, signature: t.FunctionType
    ) -> tuple[Region, ...]:
        if not signature.inputs:
            raise ParseError(Diagnostic(state.location, "input types missing in reduce-op function type", state.name))
        first = signature.inputs[0]
        element = first.element_type if isinstance(first, (t.TensorType, t.UnrankedTensorType)) else first
        return parser.shared.reducer(inner, t.TensorType((), element))

    def _reducer(self, parser: OperationParser, state: OperationState) -> None:
        parser.expect("reducer")
        elements: list[Parameter] = []
        accumulators: list[Parameter] = []
        while parser.consume_if("("):
            elements.append(parser.parse_argument())
            parser.expect(",")
            accumulators.append(parser.parse_argument())
            parser.expect(")")
        state.regions += (parser.parse_region(elements + accumulators),)

    def print(self, printer: Printer, op: Op) -> str:
        count = len(op.operands) // 2
        block = op.regions[0].blocks[0] if len(op.regions) == 1 and len(op.regions[0].blocks) == 1 else None
        if block is None or not count or len(op.operands) != 2 * count or "dimensions" not in op.attributes:
            return printer.decline()
        pairs = zip(op.operands[:count], op.operands[count:], strict=True)
        text = ", ".join(f"({printer.name(a)} init: {printer.name(b)})" for a, b in pairs)
        compact = None if printer.debug_info else self._compact(op, block)  # it has no location for the op inside
        text += f" applies {compact.name}" if compact else ""
        text += f" across dimensions = [{', '.join(map(str, op['dimensions']))}]"
        dictionary = printer.dictionary(op, {"dimensions"})
        text += f" {dictionary}" if dictionary else ""
        text += f" : {printer.signature(op)}"
        if compact:
            return text
        if len(block.arguments) != 2 * count:
            return printer.decline()
        named = printer.enter_arguments(block, "arg")
        shown = printer.shown_arguments(named, block)
        groups = " ".join(f"({a}, {b})" for a, b in zip(shown[:count], shown[count:], strict=True))
        return f"{text}\n{printer.indentation} reducer{groups}  {printer.region(op.regions[0], arguments=named)}"

    def _compact(self, op: Op, block: Block) -> Op | None:
        """Return the only op of the region, if it determines the whole region; else None."""
        if len(block.ops) != 2 or len(block.arguments) != 2:
            return None
        inner, end = block.ops
        first = op.operands[0].type
        if inner.definition is None or not _is_binary(inner.definition) or inner.attributes or inner.discardable:
            return None
        if inner.definition.dialect != self.definition.dialect or not isinstance(first, t.TensorType):
            return None
        scalar = t.TensorType((), first.element_type)
        types = [*inner.operand_types, *inner.result_types, *(a.type for a in block.arguments)]
        forwarded = inner.operands == block.arguments and end.operands == inner.results
        same = all(type is scalar for type in types) and end.name == f"{self.definition.dialect}.return"
        return inner if forwarded and same and not end.discardable else None


def _is_binary(definition: OpDef) -> bool:
    return (
        Trait.COMMUTATIVE in definition.traits
        and len(definition.operands) == 2
        and len(definition.results) == 1
        and not definition.regions
    )
