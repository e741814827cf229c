"""Ops, regions and blocks, in the generic and the pretty form.

Source: MLIR's language reference for the structure; spmd/syntax/assembly.py for each op's pretty form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import NamedTuple

from spmd import types as t
from spmd.dialects import core
from spmd.dialects.core import Trait
from spmd.errors import Diagnostic, ParseError, VerificationError
from spmd.ir import OP_CLASSES, AttributeValue, Block, Op, Region, Value, new_op
from spmd.syntax.assembly import AssemblyFormat, assembly_format
from spmd.syntax.lexer import OutOfTokens, TokenLocation, TokenPage
from spmd.syntax.operand_parser import OperandParser, OperationState
from spmd.syntax.scope import Scope

_FORMS: dict[str, AssemblyFormat] = {}


class Parameter(NamedTuple):
    """An argument of a block, as the text names it: `%name`, its type, the text of its `loc(...)`."""

    name: str
    type: t.Type
    location: str | None = None


class OperationParser(OperandParser):
    """Parses ops and their regions."""

    # --- ops ---

    def parse_op(self) -> Op:
        """Parse one op, and bind its results to their names."""
        tokens, position = self.tokens, self.position
        token = tokens[position]
        name = ""
        names: Sequence[str] = ()
        if token[:1] == "%":
            if tokens[position + 1] == "=":
                name = token
                self.position = position = position + 2
            else:
                names = self._result_names()
                position = self.position
            token = self.tokens[position]
        number = self.stream.base + position
        page = self.page
        at = number - page.first
        if at >= TokenPage.SIZE:
            page = self.page = TokenPage(self.stream, number)
            at = 0
        form = _FORMS.get(token) or self._form(token)
        if form is None:
            op = self._generic(token, page, at)
        else:
            self.position = position + 1
            state = OperationState(form.name, form.definition, page, at)
            for parse in form.parsers:
                parse(self, state)
            op = self.finish(state)
        if self.tokens[self.position][:3] == "loc" and self.tokens[self.position][3:4] in ("", "("):
            op.debug_location = self.parse_location()
        if name and op.is_value and ":" not in name and "#" not in name:
            if not self.values.add(name, op):
                self._redefined(name, op.location)
        elif name or names:
            self._bind(names or (name,), op)
        return op

    def _form(self, token: str) -> AssemblyFormat | None:
        """Return the pretty form of op name `token`, None for the generic form; raise an error for anything else."""
        if token[:1] == '"':
            return None
        if not core.is_op_name(token):
            self.expected("an operation name")
        for name in (token, f"{self.default_dialect}.{token}", f"func.{token}", f"builtin.{token}"):
            definition = core.OPS.get(name)
            if definition is not None and ("." in token or name != token):
                form = assembly_format(definition)
                if form is None:
                    self.fail(f'{name} has only the generic form: "{name}"(...) : (...) -> ...')
                _FORMS[token] = form
                return form
        if "." in token and (fault := core.name_fault(token)) is not None:
            self.fail(fault)
        self.fail(f"custom form of unknown operation '{token}': only its generic form can be read")

    def _result_names(self) -> list[str]:
        names: list[str] = []
        while True:
            token = self.tokens[self.position]
            if token[:1] != "%":
                self.expected("a value name")
            if "#" in token:
                self.fail("a result's name has no '#'")
            self.position += 1
            count = self.tokens[self.position + 1]
            if self.tokens[self.position] == ":" and ":" not in token and count.isdecimal():  # `%0 :2`
                token += f":{count}"
                self.position += 2
            names.append(token)
            if not self.consume_if(","):
                break
        self.expect("=")
        return names

    def _bind(self, names: Sequence[str], op: Op) -> None:
        """Bind the results to their names; each name denotes one result, or as many as its `:n` says."""
        results = op.results
        counts = []
        for name in names:
            base, _, digits = name.partition(":")
            if "#" in base:
                self._redefined(base, op.location)
            if len(digits) > 9:
                raise ParseError(f"'{name[:40]}' names too many results", op.location)
            counts.append((base, int(digits) if digits else 1))
        total = sum(count for _, count in counts)
        if total != len(results) or any(count < 1 for _, count in counts):
            message = f"operation defines {len(results)} results but was provided {total} to bind"
            raise ParseError(Diagnostic(op.location, message, op.name))
        index = 0
        for base, count in counts:
            for offset in range(count):
                value = results[index]
                if len(results) > 1:
                    value.name_hint = base[1:] if count == 1 else f"{base[1:]}#{offset}"
                self.define(f"{base}#{offset}" if offset or count > 1 else base, value, op.location)
                index += 1
            if count > 1:
                self.define(base, results[index - count], op.location)

    def finish(self, state: OperationState) -> Op:
        """Build the op that `state` describes."""
        definition = state.definition
        assert definition is not None
        operands = self.resolve(state)
        result_types = state.result_types
        if result_types is None:
            result_types = self._inferred(state, operands)
        attributes: Mapping[str, AttributeValue] = state.attributes
        if attributes:
            attributes = self.shared.attributes(definition, attributes)
        discardable: Mapping[str, AttributeValue] = state.discardable
        if discardable:
            discardable = self.shared.attributes(None, discardable)
        kind = OP_CLASSES.get(state.name, Op)
        op = kind(state.name, operands, result_types, attributes, state.regions, definition, discardable)
        op.read_at(state.page, state.token)
        for name in definition.required_attributes:
            if name not in state.attributes and not state.doubtful:
                self.note(state, f"requires attribute '{name}'")
        return op

    def _inferred(self, state: OperationState, operands: list[Value]) -> list[t.Type]:
        definition = state.definition
        assert definition is not None
        if not definition.results:
            return []
        if definition.inference is not None and not state.doubtful:
            draft = Op(
                state.name, operands, (), state.attributes, state.regions,
                definition=definition, location=state.location,
            )  # fmt: skip
            try:
                return definition.inference(draft)
            except core.InferenceError as error:
                raise VerificationError(Diagnostic(state.location, str(error), state.name, error.label)) from None
        constant = getattr(state.attributes.get("value"), "type", None)
        if constant is not None and not operands:
            return [constant]
        if Trait.SAME_TYPE in definition.traits and operands:
            return [operands[0].type] * len(definition.results)
        raise ParseError(
            Diagnostic(state.location, "the result types are not given and cannot be inferred", state.name)
        )

    # --- generic form ---

    def _generic(self, token: str, page: TokenPage, at: int) -> Op:
        """Parse `"dialect.op"(operands)[successors] <{properties}> ({regions}) {attributes} : type`."""
        name = self.parse_string()
        definition = core.OPS.get(name)
        if definition is None and (fault := core.name_fault(name)) is not None:
            self.fail(fault, self.position - 1)
        state = OperationState(name, definition, page, at)
        self.expect("(")
        self.parse_operand_list(state)
        self.expect(")")
        if self.at("["):
            self._successors(state)
        if self.consume_if("<"):
            self.parse_entries(state)
            self.expect(">")
        if self.at("("):
            self._regions(state, isolated=definition is not None and Trait.ISOLATED in definition.traits)
        if self.tokens[self.position] == "{":
            self.parse_entries(state)
        self.expect(":")
        position = self.position
        signature = self.parse_function_type()
        if len(signature.inputs) != len(state.operands):
            self.fail(f"expected {len(state.operands)} operand types, got {len(signature.inputs)}", position)
        state.operand_types = signature.inputs
        state.result_types = signature.results
        if definition is not None:
            return self.finish(state)
        op = new_op(
            name, self.resolve(state), signature.results, state.attributes, state.regions,
            discardable=state.discardable,
        )  # fmt: skip
        op.read_at(page, at)
        return op

    def _regions(self, state: OperationState, *, isolated: bool) -> None:
        self.expect("(")
        state.regions += tuple([self.parse_region(isolated=isolated) for _ in self.items(")")])

    def _successors(self, state: OperationState) -> None:
        """Parse `[^bb1, ^bb2]`, kept as the blocks' numbers in their region."""
        self.expect("[")
        numbers: list[int] = []
        for _ in self.items("]"):
            token = self.tokens[self.position]
            if token[:1] != "^":
                self.expected("a block name")
            numbers.append(self._block(token)[1])
            self.position += 1
        state.attributes["successors"] = tuple(numbers)

    # --- regions and blocks ---

    def _block(self, label: str) -> tuple[Block, int]:
        """Return block `label` of the region being parsed, created at its first mention."""
        block = self.blocks.get(label)
        if block is None:
            block = self.blocks[label] = (Block(), len(self.blocks) + 1)
        return block

    def parse_region(self, arguments: Iterable[Parameter] = (), *, isolated: bool = False, dialect: str = "") -> Region:
        """Parse `{...}`. `arguments` are the first block's if the op's form lists them."""
        self.deeper()
        opened = self.position
        self.expect("{")
        outer = self.values, self.default_dialect, self.blocks
        self.values = Scope(None if isolated else self.values)
        self.blocks = {}
        self.default_dialect = dialect or self.default_dialect
        blocks: list[Block] = []
        parameters = list(arguments)
        if parameters or self.tokens[self.position][:1] not in ("^", "}"):
            block = Block()
            location = TokenLocation(self.stream, self.stream.base + opened)
            for parameter in parameters:
                self._add_argument(block, parameter, location)
            blocks.append(block)
            self._ops(block)
        while self.tokens[self.position][:1] == "^":
            blocks.append(self._labelled_block())
        region = Region(blocks)
        if self.blocks:
            self._number_blocks(region)
        self.ready()
        self.expect("}")
        self.values, self.default_dialect, self.blocks = outer
        self.depth -= 1
        return region

    def _ops(self, block: Block) -> None:
        append, ahead = block.ops.append, self.stream.ready
        while True:
            if len(self.tokens) - self.position < ahead:
                if not self.tokens[self.position] and not self.stream.at_end:
                    raise OutOfTokens  # the last token may be incomplete
                self.ready()
            token = self.tokens[self.position]
            if token == "}" or token[:1] == "^" or not token:
                return
            append(self.parse_op())

    def _labelled_block(self) -> Block:
        label = self.tokens[self.position]
        location = TokenLocation(self.stream, self.number)
        block = self._block(label)[0]
        if block.ops or block.arguments:
            self.fail(f"redefinition of block '{label}'")
        self.position += 1
        if self.consume_if("("):
            for _ in self.items(")"):
                self._add_argument(block, self.parse_argument(), location)
        self.expect(":")
        self._ops(block)
        return block

    def _add_argument(self, block: Block, parameter: Parameter, location: TokenLocation) -> None:
        argument = block.add_argument(parameter.type, intern(parameter.name[1:]))
        argument.locate(parameter.location)
        self.define(parameter.name, argument, location)

    def parse_argument(self) -> Parameter:
        """Parse `%name: type`, with or without `loc(...)`."""
        name = self.tokens[self.position]
        if name[:1] != "%" or "#" in name or ":" in name:
            self.unexpected("an argument such as %arg0")
        self.position += 1
        self.expect(":")
        type = self.parse_type()
        return Parameter(name, type, self.parse_location() if self.tokens[self.position][:3] == "loc" else None)

    def _number_blocks(self, region: Region) -> None:
        """Renumber successors, numbered in the order of mention, by the order of the blocks."""
        order = {id(block): index for index, block in enumerate(region.blocks)}
        lasting: dict[int, int] = {}
        for label, (block, mention) in self.blocks.items():
            if id(block) not in order:
                self.fail(f"reference to an undefined block '{label}'")
            lasting[mention] = order[id(block)]
        for block in region.blocks:
            for op in block.ops:
                if "successors" in op.attributes:
                    successors = tuple(lasting[mention] for mention in op.attributes["successors"])
                    op.attributes = {**op.attributes, "successors": successors}
