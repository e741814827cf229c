"""A language of 64-bit integers with Python's syntax, for functions that must run without the interpreter.

A module's text has functions. Their parameters and variables are integers, addresses among them, unsigned where they
are compared, divided or shifted. A variable annotated with the name of a struct (`spmd.pjrt.structs`) is the address of
one: `buffer.size` is its field `size`, which can be assigned to. `table[index]` is the word of 64 bits at the address
`table + 8 * index`. There are while loops, if statements, arithmetic and comparisons; `and`, `or` and `not` have the
values 0 and 1. Other functions are called by their names, a function of C whose address is known by `call(function,
...)`, with integers alone. Beside these there are:

- `words(count)`: the address of so many words, until the function returns;
- `place(buffer.size)`: the address of a field;
- `load(address)`, `add(address, value)`, `greatest(address, value)`, `swap(address, expected, new)`: atomic operations
  on a word. The first three give the word of before, the last whether it was as expected, and so was replaced.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from spmd.pjrt import structs
from spmd.pjrt.structs import struct

_ARITHMETIC = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "udiv",
    ast.Mod: "urem",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.LShift: "shl",
    ast.RShift: "lshr",
}
_COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "ult", ast.LtE: "ule", ast.Gt: "ugt", ast.GtE: "uge"}
_ATOMIC = {"add": "add", "greatest": "umax"}


def llvm_of(text: str, constants: Mapping[str, int], symbols: Collection[str]) -> str:
    """Return the functions of `text` as LLVM's text.

    Names that are no variables are `constants`, or addresses of `symbols` (which stay symbols: the text is the same in
    every process). Functions that are called and not defined in `text` are declared. SyntaxError for what the language
    has not, with the line.
    """
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    written = [_Function(node, constants, symbols) for node in functions]
    defined = [function.text() for function in written]
    called = {name: count for function in written for name, count in function.called.items()}
    for node in functions:
        called.pop(node.name, None)
    declared = [f"declare i64 @{name}({', '.join(['i64'] * count)})" for name, count in called.items()]
    named = sorted({name for function in written for name in function.named})
    return "\n".join([*[f"@{name} = external global i8" for name in named], *declared, *defined])


class _Function:
    """The text of one function: variables are memory, which LLVM makes registers of."""

    def __init__(self, node: ast.FunctionDef, constants: Mapping[str, int], symbols: Collection[str]) -> None:
        #: The functions that it calls, with the number of their arguments, and the symbols that it names.
        self.called: dict[str, int] = {}
        self.named: set[str] = set()
        self._node = node
        self._constants = constants
        self._symbols = symbols
        self._structs: dict[str, str] = {}
        self._variables: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._is_ended = False

    def text(self) -> str:
        """Return the definition."""
        parameters = [parameter.arg for parameter in self._node.args.args]
        for parameter in self._node.args.args:
            self._declare(parameter.arg, parameter.annotation)
        self._body(self._node.body)
        if not self._is_ended:
            self._end("ret i64 0")
        stored = [f"  store i64 %in.{name}, ptr %{name}" for name in parameters]
        variables = [f"  %{name} = alloca i64" for name in self._variables]
        head = f"define i64 @{self._node.name}({', '.join(f'i64 %in.{name}' for name in parameters)}) nounwind {{"
        return "\n".join([head, "entry:", *variables, *stored, *self._lines, "}"])

    def _declare(self, name: str, annotation: ast.expr | None) -> None:
        if name not in self._variables:
            self._variables.append(name)
        if isinstance(annotation, ast.Name):
            self._structs[name] = annotation.id

    # --- text --------------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def _put(self, line: str) -> str:
        """Write an instruction with a result, whose name is returned."""
        result = f"%{self._name()}"
        self._lines.append(f"  {result} = {line}")
        return result

    def _do(self, line: str) -> None:
        self._lines.append(f"  {line}")

    def _end(self, line: str) -> None:
        """End a block; what follows up to the next one is never reached, and not written."""
        if not self._is_ended:
            self._do(line)
        self._is_ended = True

    def _begin(self, label: str) -> None:
        self._end(f"br label %{label}")
        self._lines.append(f"{label}:")
        self._is_ended = False

    # --- statements --------------------------------------------------------------------------------------------------

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if not self._is_ended:
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Return(value):
                self._end(f"ret i64 {self._value(value) if value is not None else 0}")
            case ast.If(test, body, orelse):
                self._if(test, body, orelse)
            case ast.While(test, body):
                self._while(test, body)
            case ast.AnnAssign(ast.Name(name), annotation, value) if value is not None:
                self._declare(name, annotation)
                self._do(f"store i64 {self._value(value)}, ptr %{name}")
            case ast.Assign([ast.Name(name)], value):
                self._declare(name, None)
                self._do(f"store i64 {self._value(value)}, ptr %{name}")
            case ast.Assign([ast.Attribute() as target], value):
                self._store(target, self._value(value))
            case ast.Assign([ast.Subscript(table, index)], value):
                number = self._value(value)
                self._do(f"store i64 {number}, ptr {self._word(table, index)}")
            case ast.Expr(ast.Call() as call):
                self._value(call)
            case _:
                raise self._refused(node)

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        number = self._name()
        yes, no, after = f"then.{number}", f"else.{number}", f"after.{number}"
        self._end(f"br i1 {self._truth(test)}, label %{yes}, label %{no}")
        for label, statements in ((yes, body), (no, orelse)):
            self._begin(label)
            self._body(statements)
            self._end(f"br label %{after}")
        self._begin(after)

    def _while(self, test: ast.expr, body: list[ast.stmt]) -> None:
        number = self._name()
        head, inside, after = f"head.{number}", f"inside.{number}", f"after.{number}"
        self._begin(head)
        self._end(f"br i1 {self._truth(test)}, label %{inside}, label %{after}")
        self._begin(inside)
        self._body(body)
        self._end(f"br label %{head}")
        self._begin(after)

    # --- values ------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> str:
        """Write an expression; return its value, an i64."""
        match node:
            case ast.Constant(value) if isinstance(value, int):
                return str(int(value))
            case ast.Name(name):
                return self._named(name, node)
            case ast.BinOp(left, operation, right) if type(operation) in _ARITHMETIC:
                return self._put(f"{_ARITHMETIC[type(operation)]} i64 {self._value(left)}, {self._value(right)}")
            case ast.Attribute():
                return self._load(node)
            case ast.Subscript(table, index):
                return self._put(f"load i64, ptr {self._word(table, index)}")
            case ast.Call(ast.Name(name), arguments, []):
                return self._call(name, arguments)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp():
                return self._put(f"zext i1 {self._truth(node)} to i64")
        raise self._refused(node)

    def _named(self, name: str, node: ast.AST) -> str:
        if name in self._variables:
            return self._put(f"load i64, ptr %{name}")
        if name in self._constants:
            return str(self._constants[name])
        if name in self._symbols:
            self.named.add(name)
            return self._put(f"ptrtoint ptr @{name} to i64")
        raise self._refused(node)

    def _truth(self, node: ast.expr) -> str:
        """Write a condition; return its value, an i1."""
        match node:
            case ast.Compare(left, [operation], [right]) if type(operation) in _COMPARISONS:
                return self._put(f"icmp {_COMPARISONS[type(operation)]} i64 {self._value(left)}, {self._value(right)}")
            case ast.BoolOp(operation, values):
                return self._several(isinstance(operation, ast.And), values)
            case ast.UnaryOp(ast.Not(), operand):
                return self._put(f"xor i1 {self._truth(operand)}, true")
            case ast.Compare() | ast.UnaryOp():
                raise self._refused(node)
        return self._put(f"icmp ne i64 {self._value(node)}, 0")

    def _several(self, is_and: bool, values: list[ast.expr]) -> str:
        """Conditions, the later ones only where the earlier ones leave it open."""
        result, after = f"%bool.{self._name()}", f"known.{self._name()}"
        self._variables.append(result[1:])
        for value in values:
            truth, following = self._truth(value), f"more.{self._name()}"
            number = self._put(f"zext i1 {truth} to i64")
            self._do(f"store i64 {number}, ptr {result}")
            yes, no = (following, after) if is_and else (after, following)
            self._end(f"br i1 {truth}, label %{yes}, label %{no}")
            self._begin(following)
        self._begin(after)
        return self._put(f"trunc i64 {self._put(f'load i64, ptr {result}')} to i1")

    # --- memory ------------------------------------------------------------------------------------------------------

    def _pointer(self, node: ast.expr) -> str:
        return self._put(f"inttoptr i64 {self._value(node)} to ptr")

    def _word(self, table: ast.expr, index: ast.expr) -> str:
        return self._put(f"getelementptr i64, ptr {self._pointer(table)}, i64 {self._value(index)}")

    def _field(self, node: ast.Attribute) -> tuple[str, int]:
        """Return the pointer to a field, and its bits."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self._structs:
            raise self._refused(node)
        name = self._structs[node.value.id]
        if not hasattr(struct(name), node.attr):
            raise self._refused(node)
        at, size = structs.place(name, node.attr)
        return self._put(f"getelementptr i8, ptr {self._pointer(node.value)}, i64 {at}"), 8 * size

    def _load(self, node: ast.Attribute) -> str:
        pointer, bits = self._field(node)
        value = self._put(f"load i{bits}, ptr {pointer}, align 1")
        return value if bits == 64 else self._put(f"zext i{bits} {value} to i64")

    def _store(self, node: ast.Attribute, value: str) -> None:
        pointer, bits = self._field(node)
        if bits < 64:
            value = self._put(f"trunc i64 {value} to i{bits}")
        self._do(f"store i{bits} {value}, ptr {pointer}, align 1")

    # --- calls -------------------------------------------------------------------------------------------------------

    def _call(self, name: str, nodes: list[ast.expr]) -> str:
        match name, nodes:
            case "words", [count]:
                return self._put(f"ptrtoint ptr {self._put(f'alloca i64, i64 {self._value(count)}')} to i64")
            case "place", [ast.Attribute() as field]:
                return self._put(f"ptrtoint ptr {self._field(field)[0]} to i64")
            case "load", [address]:
                return self._put(f"load atomic i64, ptr {self._pointer(address)} acquire, align 8")
            case "add" | "greatest", [address, value]:
                pointer = self._pointer(address)
                return self._put(f"atomicrmw {_ATOMIC[name]} ptr {pointer}, i64 {self._value(value)} seq_cst")
            case "swap", [address, expected, new]:
                values = [self._pointer(address), self._value(expected), self._value(new)]
                pair = self._put("cmpxchg ptr {}, i64 {}, i64 {} seq_cst seq_cst".format(*values))
                return self._put(f"zext i1 {self._put(f'extractvalue {{ i64, i1 }} {pair}, 1')} to i64")
            case "call", [function, *rest]:
                return self._put(f"call i64 {self._pointer(function)}({self._arguments(rest)})")
        self.called[name] = len(nodes)
        return self._put(f"call i64 @{name}({self._arguments(nodes)})")

    def _arguments(self, nodes: list[ast.expr]) -> str:
        return ", ".join([f"i64 {self._value(node)}" for node in nodes])

    def _refused(self, node: ast.AST) -> SyntaxError:
        line = getattr(node, "lineno", 0)
        return SyntaxError(f"line {line}: the language of spmd.pjrt.machine has no such thing: {ast.unparse(node)}")
