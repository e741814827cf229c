"""Programs as text: modules, functions, regions, blocks and ops, in the generic and the pretty form.

Source: MLIR's language reference for the structure; spmd/syntax/assembly.py for each op's pretty form.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from spmd import types as t
from spmd.attributes import Attribute, DenseArrayAttr, DenseAttr, LocationAttr
from spmd.dialects import core
from spmd.dialects.core import OpDef
from spmd.errors import Diagnostic, Location, ParseError, Source, SpmdError, VerificationError
from spmd.ir import Block, Module, Op, Region, Value, new_op
from spmd.syntax.assembly import Form, form_of
from spmd.syntax.attribute_cursor import AttributeCursor
from spmd.syntax.cursor import Names
from spmd.syntax.lexer import OutOfTokens, TokenLocation, Tokens
from spmd.syntax.literals import hex_bytes

#: Attributes that say how many values each variadic operand or result has.
SEGMENTS = ("operandSegmentSizes", "resultSegmentSizes")
_OP_NAME = re.compile(r"[A-Za-z_][\w$\-]*(?:\.[\w$.\-]+)?", re.ASCII)
_LOCATION_ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)[ \t\r]*$", re.MULTILINE | re.ASCII)
_LOCATION_NAME = re.compile(r"#loc\d*\b", re.ASCII)
_RESOURCE = re.compile(r'([\w$.\-]+|"[^"\n]*"): "0x', re.ASCII)
_LONGEST_LOCATION = 1000
_LONGEST_MESSAGE = 400
#: What stands on a line before its comment.
_COMMENT = re.compile(r'((?:[^/"\n]++|"[^"\n]*+"|/(?!/)|")*+)')


class Pending:
    """An op while it is read: what its form has found so far."""

    __slots__ = (
        "attributes", "definition", "discardable", "doubtful", "first_operand", "location", "name", "operand_types",
        "operands", "regions", "result_types", "sizes", "typed",
    )  # fmt: skip

    def __init__(self, name: str, definition: OpDef | None, location: TokenLocation) -> None:
        self.name = name
        self.definition = definition
        self.location = location
        self.operands: list[str] = []
        self.first_operand = 0
        self.operand_types: Sequence[t.Type] | None = None
        self.typed: dict[str, list[t.Type]] | None = None
        self.sizes: dict[str, int] | None = None
        self.result_types: Sequence[t.Type] | None = None
        self.attributes: dict[str, Any] = {}
        self.discardable: dict[str, Attribute] = {}
        self.regions: list[Region] = []
        self.doubtful = False


class Parser(AttributeCursor):
    """Reads a whole text."""

    def __init__(self, source: Source, *, all_at_once: bool = False) -> None:
        self.stream = Tokens(source)
        if all_at_once:
            self.stream.ready = self.stream.piece = len(source.text) + 1
        super().__init__(
            self.stream.list, Names(load_locations=self._read_locations, load_resources=self._read_resources)
        )
        self.source = source
        self.values: dict[str, Value] = {}
        self.defined: list[str] = []
        self.diagnostics: list[Diagnostic] = []
        self.dialects = core.dialects()
        self.default_dialect = "builtin"
        self.blocks: dict[str, tuple[Block, int]] = {}

    # --- tokens and errors ---

    def fail_at(self, position: int, offset: int, message: str, *, misplaced: bool = False, also: str = "") -> NoReturn:
        if not (self.tokens[self.position] and self.tokens[position]) and not self.stream.at_end:
            raise OutOfTokens
        place = self.stream.offset(self.stream.base + position) + offset
        found = [Diagnostic(Location(self.source, self._before(place) if misplaced else place), _shortened(message))]
        if also:
            found.append(Diagnostic(Location(self.source, place), also))
        raise ParseError(found)

    def _before(self, place: int) -> int:
        """`place`, or the end of the last line before it that has more than a comment, when it is first on its line."""
        text = self.source.text
        start = text.rfind("\n", 0, place) + 1
        if start == 0 or text[start:place].strip():
            return place
        while start > 0:
            end = start - 1
            start = text.rfind("\n", 0, end) + 1
            line = _COMMENT.match(text, start, end)
            if line and line[1].strip():
                return line.start(1) + len(line[1].rstrip())
        return place

    def fail_number(self, number: int, message: str) -> NoReturn:
        raise ParseError(_shortened(message), TokenLocation(self.stream, number))

    def _between(self, start: int, end: int) -> str:
        base = self.stream.base
        last = base + end - 1
        text = self.source.text[self.stream.offset(base + start) : self.stream.offset(last)] + self.tokens[end - 1]
        return " ".join(self.tokens[start:end]) if "//" in text else " ".join(text.split())

    def split(self) -> None:
        self.stream.split(self.position)

    @property
    def number(self) -> int:
        """The next token's number."""
        return self.stream.base + self.position

    def ready(self) -> None:
        """Sees to it that a good many tokens are at hand."""
        if len(self.tokens) - self.position < 1024 and not self.stream.at_end:
            self.position = self.stream.fill(self.position)
            self.tokens = self.stream.list

    # --- the file ---

    def module(self) -> Module:
        """The whole text as a module."""
        block = Block()
        self.ready()
        location = TokenLocation(self.stream, 0)
        while True:
            if not self.tokens[self.position] and not self.stream.at_end:
                raise OutOfTokens  # what was read last may go on
            self.ready()
            token = self.tokens[self.position]
            if not token:
                break
            if token[0] == "#" and self.tokens[self.position + 1] == "=":
                self._attribute_alias()
            elif token[0] == "!" and self.tokens[self.position + 1] == "=":
                self._type_alias()
            elif token == "{-#":
                self._skip_metadata()
            else:
                block.ops.append(self.op())
        if not block.ops:
            raise ParseError("the text holds no operation", location)
        only = block.ops[0] if len(block.ops) == 1 else None
        if isinstance(only, Module):
            return only
        made = Module(
            "builtin.module", regions=[Region([block])], definition=core.OPS.get("builtin.module"), location=location
        )
        return made

    def _attribute_alias(self) -> None:
        position = self.position
        name = self.tokens[position]
        self.position += 2
        value = self.attribute()
        if isinstance(value, LocationAttr):
            return
        if name in self.names.attribute_aliases:
            self.fail(f"redefinition of attribute alias '{name}'", position)
        if "." in name:
            self.fail("attribute names with a '.' are reserved for dialect-defined names", position)
        self.names.attribute_aliases[name] = value

    def _type_alias(self) -> None:
        position = self.position
        name = self.tokens[position]
        self.position += 2
        if name in self.names.type_aliases:
            self.fail(f"redefinition of type alias '{name}'", position)
        if "." in name:
            self.fail("type names with a '.' are reserved for dialect-defined names", position)
        made = self.type()
        self.names.type_aliases[name] = made
        self.types[name] = made

    def _read_locations(self) -> dict[str, str]:
        """The location aliases, each spelled out."""
        done: dict[str, str] = {}
        for name, body in dict(_LOCATION_ALIAS.findall(self.source.text)).items():
            text = _LOCATION_NAME.sub(lambda match: done.get(match[0], match[0]), body)
            done["#" + name] = text if len(text) <= _LONGEST_LOCATION else "unknown"
        return done

    def _read_resources(self) -> dict[str, bytes]:
        """The constants that stand at the end of the file."""
        text = self.source.text
        start = text.rfind("{-#")
        found: dict[str, bytes] = {}
        if start < 0:
            return found
        for match in _RESOURCE.finditer(text, start):
            begin = match.end()
            end = text.find('"', begin)
            try:
                data = hex_bytes(text[begin : end if end >= 0 else len(text)])
            except ValueError as error:
                raise ParseError(f"resource {match[1]}: {error}", Location(self.source, begin)) from None
            # The first four bytes are the blob's alignment.
            found[match[1].strip('"')] = data[4:]
        return found

    def _skip_metadata(self) -> None:
        start = self.number
        while self.tokens[self.position] != "#-}":
            if not self.tokens[self.position]:
                self.fail_number(start, "'{-#' is never closed")
            self.position += 1
            self.ready()
        self.position += 1

    # --- ops ---

    def op(self) -> Op:
        """One op, its results bound to their names."""
        tokens, position = self.tokens, self.position
        token = tokens[position]
        names: Sequence[str] = ()
        if token[:1] == "%":
            if tokens[position + 1] == "=":
                names = (token,)
                self.position = position = position + 2
            else:
                names = self._result_names()
                position = self.position
            token = self.tokens[position]
        location = TokenLocation(self.stream, self.stream.base + position)
        names_at = location
        form = _FORMS.get(token) or self._form(token)
        if form is None:
            made = self._generic(token, location)
        else:
            self.position = position + 1
            pending = Pending(form.name, form.definition, location)
            for parse in form.parsers:
                parse(self, pending)
            made = self.finish(pending)
        if self.tokens[self.position][:3] == "loc" and self.tokens[self.position][3:4] in ("", "("):
            made.debug_location = self.location()
        results = made.results
        if len(names) == 1 and len(results) == 1 and ":" not in names[0]:
            name = names[0]
            if name in self.values or "#" in name:
                self._redefined(name, names_at)
            self.values[name] = value = results[0]
            value.name = name[1:]
            self.defined.append(name)
        elif names or results:
            self._bind(names, made, names_at)
        return made

    def _form(self, token: str) -> Form | None:
        """The pretty form that op name `token` has; None for the generic form; an error for anything else."""
        if token[:1] == '"':
            return None
        if not _OP_NAME.fullmatch(token):
            self.expected("an operation name")
        for name in (token, f"{self.default_dialect}.{token}", f"func.{token}", f"builtin.{token}"):
            definition = core.OPS.get(name)
            if definition is not None and ("." in token or name != token):
                form = form_of(definition)
                if form is None:
                    self.fail(f'{name} has only the generic form: "{name}"(...) : (...) -> ...')
                _FORMS[token] = form
                return form
        dialect = token.partition(".")[0]
        if "." in token and dialect in self.dialects:
            self.fail(f"{token} is no operation of the {dialect} dialect")
        self.fail(f"custom form of unknown operation '{token}': only its generic form can be read")

    def _result_names(self) -> list[str]:
        names: list[str] = []
        while True:
            token = self.tokens[self.position]
            if token[:1] != "%":
                self.expected("a value name")
            if "#" in token:
                self.fail("a result's name has no '#'")
            names.append(token)
            self.position += 1
            if not self.take(","):
                break
        self.expect("=")
        return names

    def _bind(self, names: Sequence[str], made: Op, location: TokenLocation) -> None:
        """Gives the results their names; each name stands for one result, or as many as its `:n` says."""
        if not names:
            return
        counts = []
        for name in names:
            base, _, count = name.partition(":")
            if len(count) > 9:
                raise ParseError(f"'{name[:40]}' names too many results", location)
            counts.append((base, int(count) if count else 1))
        total = sum(count for _, count in counts)
        if total != len(made.results) or any(count < 1 for _, count in counts):
            message = f"operation defines {len(made.results)} results but was provided {total} to bind"
            raise ParseError(Diagnostic(location, message, made.name))
        index = 0
        for base, count in counts:
            for offset in range(count):
                value = made.results[index]
                value.name = base[1:] if count == 1 else f"{base[1:]}#{offset}"
                self.define(f"{base}#{offset}" if offset or count > 1 else base, value, location)
                index += 1
            if count > 1:
                self.define(base, made.results[index - count], location)

    def define(self, name: str, value: Value, location: TokenLocation) -> None:
        if name in self.values:
            self._redefined(name, location)
        self.values[name] = value
        self.defined.append(name)

    def _redefined(self, name: str, location: TokenLocation) -> NoReturn:
        raise ParseError(f"redefinition of SSA value '{name}'", location)

    def finish(self, pending: Pending) -> Op:
        """The op that `pending` describes."""
        definition = pending.definition
        assert definition is not None
        operands = self.resolve(pending)
        result_types = pending.result_types
        if result_types is None:
            result_types = self._inferred(pending, operands)
        made = new_op(
            pending.name, operands, result_types, pending.attributes, pending.regions,
            definition=definition, discardable=pending.discardable, location=pending.location,
        )  # fmt: skip
        required = _REQUIRED.get(pending.name)
        if required is None:
            required = _REQUIRED[pending.name] = tuple(a.name for a in definition.attributes if a.required)
        if required:
            for name in required:
                if name not in pending.attributes and not pending.doubtful:
                    self.note(pending, f"requires attribute '{name}'")
        return made

    def note(self, pending: Pending, message: str) -> None:
        """Keeps an error that does not keep the rest of the text from being read."""
        pending.doubtful = True
        self.diagnostics.append(Diagnostic(pending.location, message, pending.name))

    def _inferred(self, pending: Pending, operands: list[Value]) -> list[t.Type]:
        definition = pending.definition
        assert definition is not None
        if not definition.results:
            return []
        if definition.inference is not None and not pending.doubtful:
            draft = Op(
                pending.name, operands, (), pending.attributes, pending.regions,
                definition=definition, location=pending.location,
            )  # fmt: skip
            try:
                return definition.inference(draft)
            except core.InferenceError as error:
                raise VerificationError(Diagnostic(pending.location, str(error), pending.name, error.label)) from None
        constant = getattr(pending.attributes.get("value"), "type", None)
        if constant is not None and not operands:
            return [constant]
        if "same_type" in definition.traits and operands:
            return [operands[0].type] * len(definition.results)
        raise ParseError(
            Diagnostic(pending.location, "the result types are not given and cannot be inferred", pending.name)
        )

    # --- operands ---

    def operand(self, pending: Pending) -> None:
        """One value, by name."""
        token = self.tokens[self.position]
        if token[:1] != "%" or ":" in token:
            self.expected("an SSA operand")
        if not pending.operands:
            pending.first_operand = self.stream.base + self.position
        pending.operands.append(token)
        self.position += 1

    def operand_list(self, pending: Pending) -> int:
        """Any number of values with commas between; returns how many."""
        if self.tokens[self.position][:1] != "%":
            return 0
        count = 1
        self.operand(pending)
        while self.tokens[self.position] == ",":
            self.position += 1
            self.operand(pending)
            count += 1
        return count

    def resolve(self, pending: Pending) -> list[Value]:
        """The values of the operands' names, each of the type the text gives it."""
        values = self.values
        types = pending.operand_types
        if types is None:
            if pending.typed:
                types = self._typed(pending)
            else:
                return [
                    values.get(name) or self._missing(pending, index) for index, name in enumerate(pending.operands)
                ]
        if len(types) != len(pending.operands):
            message = f"{len(pending.operands)} operands present, but expected {len(types)}"
            raise ParseError(Diagnostic(pending.location, message, pending.name))
        found = []
        for name, type in zip(pending.operands, types, strict=True):
            value = values.get(name)
            if value is None:
                value = self._missing(pending, len(found))
            if value.type is not type and type is not None:
                self._mistyped(pending, len(found), value, type)
            found.append(value)
        return found

    def _typed(self, pending: Pending) -> list[t.Type]:
        """Types by operand, in order; None where the form gives none."""
        assert pending.definition is not None and pending.typed is not None
        types: list[Any] = []
        for declared in pending.definition.operands:
            count = pending.sizes.get(declared.name, 1) if pending.sizes else 1
            given = pending.typed.get(declared.name)
            if given is not None and len(given) != count:
                message = f"{count} operands {declared.name} present, but expected {len(given)}"
                raise ParseError(Diagnostic(pending.location, message, pending.name))
            types += given if given is not None else [None] * count
        return types

    def _place(self, pending: Pending, index: int) -> int:
        """The number of the token of operand `index`."""
        name = pending.operands[index]
        first = pending.first_operand
        start = first - self.stream.base
        if start >= 0:
            end = min(len(self.tokens), start + 4 * len(pending.operands) + 16)
            near = [at for at in range(start, end) if self.tokens[at] == name]
            repeats = pending.operands[:index].count(name)
            if len(near) > repeats:
                return self.stream.base + near[repeats]
        return first + 2 * index

    def _missing(self, pending: Pending, index: int) -> Value:
        name = pending.operands[index]
        base, _, number = name.partition("#")
        value = self.values.get(base)
        if number == "0" and value is not None:
            return value
        what = (
            "reference to invalid result number of" if number and value is not None else "use of undeclared SSA value"
        )
        self.fail_number(self._place(pending, index), f"{what} '{name}'")

    def _mistyped(self, pending: Pending, index: int, value: Value, type: t.Type) -> NoReturn:
        name = pending.operands[index]
        message = f"use of value '{name}' expects a different type than its definition: {type} against {value.type}"
        self.fail_number(self._place(pending, index), message)

    # --- attributes of ops ---

    def entries(self, pending: Pending) -> None:
        """`{...}`: each entry filed where it belongs."""
        for name, attribute in self.dictionary().items():
            self.file(pending, name, attribute)

    def file(self, pending: Pending, name: str, attribute: Attribute) -> None:
        """An attribute that the declaration knows is decoded, any other kept as it is."""
        definition = pending.definition
        declared = definition.attribute_table.get(name) if definition is not None else None
        if declared is None:
            if name in SEGMENTS and definition is not None:
                self._segments(pending, name, attribute)
            elif name in pending.discardable:
                self.note(pending, f"attribute '{name}' is given twice")
            else:
                pending.discardable[name] = attribute
            return
        if name in pending.attributes:
            self.note(pending, f"attribute '{name}' is given twice")
            return
        try:
            pending.attributes[name] = declared.kind.decode(attribute)
        except ValueError as error:
            self.note(pending, f"attribute '{name}': {error}")

    def _segments(self, pending: Pending, name: str, attribute: Attribute) -> None:
        sizes: tuple[int, ...] | None = None
        if isinstance(attribute, DenseArrayAttr):
            sizes = attribute.values
        elif isinstance(attribute, DenseAttr) and attribute.array.ndim == 1 and attribute.array.size < 1000:
            sizes = tuple(map(int, attribute.array.tolist()))
        if sizes is None or not all(isinstance(size, int) and size >= 0 for size in sizes):
            self.note(pending, f"attribute '{name}': expected array<i32: ...> of non-negative sizes")
        else:
            pending.attributes[name] = sizes

    # --- generic form ---

    def _generic(self, token: str, location: TokenLocation) -> Op:
        """`"dialect.op"(operands)[successors] <{properties}> ({regions}) {attributes} : type`."""
        name = self.string()
        definition = core.OPS.get(name)
        if definition is None:
            dialect = name.partition(".")[0]
            if not _OP_NAME.fullmatch(name):
                self.fail(f"'{name[:80]}' is no operation name", self.position - 1)
            if dialect in self.dialects:
                self.fail(f"{name} is no operation of the {dialect} dialect", self.position - 1)
        pending = Pending(name, definition, location)
        self.expect("(")
        self.operand_list(pending)
        self.expect(")")
        if self.at("["):
            self._successors(pending)
        if self.take("<"):
            self.entries(pending)
            self.expect(">")
        if self.at("("):
            self._regions(pending, isolated=definition is not None and "isolated" in definition.traits)
        if self.tokens[self.position] == "{":
            self.entries(pending)
        self.expect(":")
        signature = self.function_type()
        pending.operand_types = signature.inputs
        pending.result_types = signature.results
        if definition is not None:
            return self.finish(pending)
        return new_op(
            name, self.resolve(pending), signature.results, pending.attributes, pending.regions,
            discardable=pending.discardable, location=location,
        )  # fmt: skip

    def _regions(self, pending: Pending, *, isolated: bool) -> None:
        self.expect("(")
        if not self.take(")"):
            while True:
                pending.regions.append(self.region(isolated=isolated))
                if not self.take(","):
                    break
            self.expect(")")

    def _successors(self, pending: Pending) -> None:
        """`[^bb1, ^bb2]`, kept as the blocks' numbers in their region."""
        self.expect("[")
        numbers: list[int] = []
        while not self.take("]"):
            token = self.tokens[self.position]
            if token[:1] != "^":
                self.expected("a block name")
            numbers.append(self._block(token)[1])
            self.position += 1
            if not self.take(","):
                self.expect("]")
                break
        pending.attributes["successors"] = tuple(numbers)

    # --- regions and blocks ---

    def _block(self, label: str) -> tuple[Block, int]:
        """The block `label` of the region being read, made at its first mention, and the order of mentions."""
        found = self.blocks.get(label)
        if found is None:
            found = self.blocks[label] = (Block(), len(self.blocks) + 1)
        return found

    def region(
        self, arguments: Iterable[tuple[str, t.Type]] = (), *, isolated: bool = False, dialect: str = ""
    ) -> Region:
        """`{...}`. `arguments` are the names and types of the first block's where the op's own form tells them."""
        self.deeper()
        opened = self.position
        self.expect("{")
        outer = self.values, self.defined, self.default_dialect, self.blocks
        if isolated:
            self.values = {}
        self.defined, self.blocks = [], {}
        self.default_dialect = dialect or self.default_dialect
        region = Region()
        given = list(arguments)
        if given or self.tokens[self.position][:1] not in ("^", "}"):
            block = Block()
            location = TokenLocation(self.stream, self.stream.base + opened)
            for name, type in given:
                self.define(name, block.add_argument(type, name[1:]), location)
            region.blocks.append(block)
            self._ops(block)
        while self.tokens[self.position][:1] == "^":
            region.blocks.append(self._labelled_block())
        if self.blocks:
            self._number_blocks(region)
        self.ready()
        self.expect("}")
        if not isolated:
            for name in self.defined:
                del self.values[name]
        self.values, self.defined, self.default_dialect, self.blocks = outer
        self.depth -= 1
        return region

    def _ops(self, block: Block) -> None:
        append = block.ops.append
        while True:
            if len(self.tokens) - self.position < 1024:
                if not self.tokens[self.position] and not self.stream.at_end:
                    raise OutOfTokens  # what was read last may go on
                self.ready()
            token = self.tokens[self.position]
            if token == "}" or token[:1] == "^" or not token:
                return
            append(self.op())

    def _labelled_block(self) -> Block:
        label = self.tokens[self.position]
        location = TokenLocation(self.stream, self.number)
        block = self._block(label)[0]
        if block.ops or block.arguments:
            self.fail(f"redefinition of block '{label}'")
        self.position += 1
        if self.take("(") and not self.take(")"):
            while True:
                name, type = self.argument()
                self.define(name, block.add_argument(type, name[1:]), location)
                if not self.take(","):
                    break
            self.expect(")")
        self.expect(":")
        self._ops(block)
        return block

    def argument(self) -> tuple[str, t.Type]:
        """`%name: type`, with or without a location."""
        name = self.tokens[self.position]
        if name[:1] != "%" or "#" in name or ":" in name:
            self.expected("an argument such as %arg0")
        self.position += 1
        self.expect(":")
        type = self.type()
        if self.tokens[self.position][:3] == "loc":
            self.location()
        return name, type

    def _number_blocks(self, region: Region) -> None:
        """Successors were numbered in the order of mention: renumber them by the order of the blocks."""
        order = {id(block): index for index, block in enumerate(region.blocks)}
        lasting: dict[int, int] = {}
        for label, (block, mention) in self.blocks.items():
            if id(block) not in order:
                self.fail(f"reference to an undefined block '{label}'")
            lasting[mention] = order[id(block)]
        for block in region.blocks:
            for op in block.ops:
                if "successors" in op.attributes:
                    op.attributes["successors"] = tuple(lasting[mention] for mention in op.attributes["successors"])


_FORMS: dict[str, Form] = {}
_REQUIRED: dict[str, tuple[str, ...]] = {}


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "..."


def decode(data: str | bytes, name: str) -> Source:
    """The source text; ParseError, with its place, for bytes that are not UTF-8."""
    if isinstance(data, str):
        return Source(name, data)
    try:
        return Source(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        text = data[: error.start].decode("utf-8", "replace") + "\ufffd"
        message = f"invalid UTF-8: byte 0x{data[error.start]:02x}"
        raise ParseError(message, Location(Source(name, text), len(text) - 1)) from None


def parse(text: str | bytes, name: str = "<text>") -> Module:
    """The module that `text` is; bare ops get a module around them.

    Nothing but the form is checked: spmd.verify does the rest. Raises ParseError for the first thing that is not the
    language's, or VerificationError for all attributes that are not what their op declares.
    """
    source = decode(text, name)
    collecting = gc.isenabled()
    gc.disable()  # all that is made here lasts: looking through it again and again would find nothing
    try:
        module, diagnostics = _parse(source)
    finally:
        if collecting:
            gc.enable()
    if diagnostics:
        raise VerificationError(diagnostics)
    return module


def _parse(source: Source) -> tuple[Module, list[Diagnostic]]:
    parser = Parser(source)
    try:
        try:
            module = parser.module()
        except OutOfTokens:
            parser = Parser(source, all_at_once=True)
            module = parser.module()
    except SpmdError as error:
        if parser.diagnostics and isinstance(error, ParseError):
            raise ParseError([*parser.diagnostics, *error.diagnostics]) from None
        raise
    except (RecursionError, MemoryError) as error:
        raise ParseError(
            f"the text is too large or too deep: {type(error).__name__}", TokenLocation(parser.stream, parser.number)
        ) from None
    return module, parser.diagnostics
