"""Factorizations and triangular solves of real matrices, by LAPACK and BLAS.

Arrays are row-major where Fortran is column-major, so a routine sees each matrix transposed. It is asked for the
transpose of the result: an upper factor for a lower one, A = LQ for A = QR, a solve from the right for one from the
left. Only LU has no such dual; its matrices are transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from spmd.analysis.custom_calls import call_attributes, is_registered
from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import native
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.matmul.blas import check_sizes
from spmd.compiler.schedule.buffers import nbytes
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.ir import Op, Value
from spmd.types import F32, F64, I32, TensorType

#: By element type: the prefix of routines, and the LLVM type.
_TYPES = {F32: ("s", "float"), F64: ("d", "double")}
#: Block size of blocked routines, in columns.
_BLOCK = 64


def _are_matrices(values: Sequence[Value]) -> bool:
    """Return whether all `values` are f32, or all f64, nonempty matrices of static shape, or batches of them."""
    if not all(is_plain(value.type) and value.tensor.rank >= 2 and all(value.tensor.static_shape) for value in values):
        return False
    elements = {value.tensor.element_type for value in values}
    return len(elements) == 1 and elements <= set(_TYPES)


class _Caller:
    """Emits calls of routines on the matrices of one op, batch by batch."""

    def __init__(self, writer: FunctionEmitter, step: LibraryCall) -> None:
        self.writer, self.op = writer, step.op
        op = step.op
        #: Scratch memory.
        self.scratch = [writer.address(buffer) for buffer in step.scratch]
        self.text: FunctionText = writer.text
        shape = op.operands[0].tensor.static_shape
        self.batch = prod(shape[:-2])
        self.rows, self.columns = shape[-2:]
        element = op.operands[0].tensor.element_type
        self.letter, self.type = _TYPES[element]  # type: ignore[index]
        self.item = op.operands[0].tensor.dtype.itemsize
        self.known = writer.routine(f"{self.letter}potrf")
        self.integer = self.known.integer

    def each(self, values: Sequence[Value], write: Callable[[list[str]], None]) -> None:
        """Emit a loop over the batch around `write`, which is given the addresses of the matrices, vectors or scalars
        of `values`.
        """
        pointers = [self.writer.pointer(value) for value in values]
        if self.batch == 1:
            write(pointers)
            return
        index, _ = self.text.open_loop()
        moved = [
            self.at(pointer, self.text.value(f"mul i64 {index}, {nbytes(value) // self.batch}"))
            for pointer, value in zip(pointers, values, strict=True)
        ]
        write(moved)
        self.text.close_loop(self.batch)

    def at(self, pointer: str, offset: str) -> str:
        """Return the address `offset` bytes after `pointer`."""
        return self.text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def in_place_of(self, operand: Value, result: Value) -> None:
        """Copy `operand` to the memory of `result`."""
        self.writer.copy(self.writer.pointer(result), self.writer.pointer(operand), nbytes(result))

    def number(self, value: int) -> str:
        """Return the address of an integer constant; CompileError if the library's integers are too narrow."""
        check_sizes(self.known, [value], self.op)
        return self.writer.global_(self.integer, str(value))

    def flag(self, letter: str) -> str:
        """Return the address of a character option."""
        return self.writer.global_("i8", str(ord(letter)))

    def one(self) -> str:
        """Return the address of 1.0."""
        return self.writer.global_(self.type, "1.0")

    def call(self, name: str, *arguments: str) -> None:
        """Emit a call of the routine `name`, given without its prefix."""
        known = self.writer.routine(self.letter + name)
        self.writer.symbols[known.symbol] = known.address
        self.text.declarations[f"declare void @{known.symbol}({', '.join(['ptr'] * len(arguments))})"] = None
        self.text.call(f"call void @{known.symbol}({', '.join(f'ptr {argument}' for argument in arguments)})")

    def info(self) -> str:
        """Return a slot for a routine's status."""
        return self.text.allocate(self.integer, 8)

    def as_i32(self, source: str, target: str) -> None:
        """Convert one of LAPACK's integers to an i32."""
        value = self.text.value(f"load {self.integer}, ptr {source}")
        if self.integer != "i32":
            value = self.text.value(f"trunc {self.integer} {value} to i32")
        self.text.line(f"store i32 {value}, ptr {target}")

    def transpose(self, source: str, target: str, rows: int, columns: int) -> None:
        """Emit the transpose of a dense matrix of `rows` and `columns`."""
        text = self.text
        row, _ = text.open_loop()
        column, _ = text.open_loop()
        start = text.value(f"add i64 {text.value(f'mul i64 {row}, {columns}')}, {column}")
        place = text.value(f"add i64 {text.value(f'mul i64 {column}, {rows}')}, {row}")
        origin = text.value(f"getelementptr {self.type}, ptr {source}, i64 {start}")
        value = text.value(f"load {self.type}, ptr {origin}")
        goal = text.value(f"getelementptr {self.type}, ptr {target}, i64 {place}")
        text.line(f"store {self.type} {value}, ptr {goal}")
        text.close_loop(columns)
        text.close_loop(rows)


# --- factorizations --------------------------------------------------------------------------------------------------


def _is_cholesky(op: Op) -> bool:
    return _are_matrices([*op.operands, op.result])


@native("stablehlo.cholesky", _is_cholesky)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    """Emit Cholesky factors: the other triangle is zero; a matrix that is not positive definite gives NaN."""
    caller, op, text = _Caller(writer, step), step.op, writer.text
    size, row_bytes = caller.rows, caller.rows * caller.item
    caller.in_place_of(op.operands[0], op.result)
    report = caller.info()

    def write(pointers: list[str]) -> None:
        (matrix,) = pointers
        order = caller.number(size)
        caller.call("potrf", caller.flag("U" if op["lower"] else "L"), order, matrix, order, report)
        failed = text.value(f"load {caller.integer}, ptr {report}")
        with text.where(text.value(f"icmp ne {caller.integer} {failed}, 0")):
            place, _ = text.open_loop()
            target = text.value(f"getelementptr {caller.type}, ptr {matrix}, i64 {place}")
            text.line(f"store {caller.type} 0x7FF8000000000000, ptr {target}")
            text.close_loop(size * size)
        row, _ = text.open_loop()
        begin = caller.at(matrix, text.value(f"mul i64 {row}, {row_bytes}"))
        before = text.value(f"mul i64 {row}, {caller.item}")
        if op["lower"]:
            through = text.value(f"add i64 {before}, {caller.item}")
            begin, before = caller.at(begin, through), text.value(f"sub i64 {row_bytes}, {through}")
        text.line(f"call void @llvm.memset.p0.i64(ptr {begin}, i8 0, i64 {before}, i1 false)")
        text.close_loop(size)

    caller.each([op.result], write)


@dataclass(frozen=True)
class _Target:
    """A LAPACK custom call: `fits` checks its operands, results and options, `write` emits it.

    `scratch`: the sizes of its scratch memory.
    """

    fits: Callable[[Op], bool]
    write: Callable[[_Caller], None]
    scratch: Callable[[Op], tuple[int, ...]]


_TARGETS: dict[str, _Target] = {}


def _target(
    name: str, fits: Callable[[Op], bool], scratch: Callable[[Op], tuple[int, ...]] = lambda op: ()
) -> Callable[[Callable[[_Caller], None]], Callable[[_Caller], None]]:
    """Register the emitter of the calls `lapack_s<name>_ffi` and `lapack_d<name>_ffi`; return a decorator."""

    def add(write: Callable[[_Caller], None]) -> Callable[[_Caller], None]:
        for letter, _ in _TYPES.values():
            _TARGETS[f"lapack_{letter}{name}_ffi"] = _Target(fits, write, scratch)
        return write

    return add


def is_lapack_call(op: Op) -> bool:
    """Return whether `op`, a custom call, is a supported LAPACK routine, not overridden by a user's target."""
    known = _TARGETS.get(op["call_target_name"])
    if known is None or is_registered(op["call_target_name"]) or not op.operands:
        return False
    if not all(is_plain(value.type) for value in (*op.operands, *op.results)):
        return False
    element = op.operands[0].tensor.element_type
    letter, _ = _TYPES.get(element, ("", ""))  # type: ignore[call-overload]
    return op["call_target_name"].startswith(f"lapack_{letter}") and bool(letter) and known.fits(op)


def plan_lapack_call(op: Op) -> LibraryPlan:
    """Return the scratch memory of a LAPACK call."""
    return LibraryPlan(scratch=_TARGETS[op["call_target_name"]].scratch(op))


def write_lapack_call(writer: FunctionEmitter, step: LibraryCall) -> None:
    """Emit a LAPACK call."""
    _TARGETS[step.op["call_target_name"]].write(_Caller(writer, step))


def _block_bytes(op: Op) -> tuple[int, ...]:
    """Return the bytes of a block of columns, or rows, of the first operand."""
    matrix = op.operands[0].tensor
    return (_BLOCK * max(matrix.static_shape[-2:]) * matrix.dtype.itemsize,)


def _option(op: Op, name: str, letters: str) -> str:
    """Return the option `name` of a call, one of `letters`; "" if it is missing or any other."""
    config = call_attributes(op).get("backend_config")
    code = config.get(name) if isinstance(config, Mapping) else None
    letter = chr(code) if isinstance(code, int) and 0 < code < 128 else ""
    return letter if letter in letters else ""


def _are_of(op: Op, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]], integers: int) -> bool:
    """Return whether a call has operands and results of these shapes, batched; the last `integers` results are i32."""
    matrix = op.operands[0].tensor
    batch = matrix.static_shape[:-2]
    floats = [matrix.element_type] * (len(results) - integers)
    operand_types = [TensorType((*batch, *shape), matrix.element_type) for shape in operands]
    result_types = [TensorType((*batch, *s), e) for s, e in zip(results, [*floats, *[I32] * integers], strict=True)]
    return [value.type for value in op.operands] == operand_types and [v.type for v in op.results] == result_types


def _is_potrf(op: Op) -> bool:
    if not _are_matrices(op.operands) or not _option(op, "uplo", "LU"):
        return False
    shape = op.operands[0].tensor.static_shape[-2:]
    return shape[0] == shape[1] and _are_of(op, [shape], [shape, ()], 1)


@_target("potrf", _is_potrf)
def _(caller: _Caller) -> None:
    op = caller.op
    caller.in_place_of(op.operands[0], op.results[0])
    report, order = caller.info(), caller.number(caller.rows)
    flag = caller.flag("U" if _option(op, "uplo", "LU") == "L" else "L")

    def write(pointers: list[str]) -> None:
        caller.call("potrf", flag, order, pointers[0], order, report)
        caller.as_i32(report, pointers[1])

    caller.each(op.results, write)


def _is_getrf(op: Op) -> bool:
    if not _are_matrices(op.operands):
        return False
    rows, columns = op.operands[0].tensor.static_shape[-2:]
    return _are_of(op, [(rows, columns)], [(rows, columns), (min(rows, columns),), ()], 2)


def _lu_bytes(op: Op) -> tuple[int, ...]:
    """Return the bytes of a matrix, and of 64-bit pivots."""
    matrix = op.operands[0].tensor
    rows, columns = matrix.static_shape[-2:]
    return rows * columns * matrix.dtype.itemsize, 8 * min(rows, columns)


@_target("getrf", _is_getrf, _lu_bytes)
def _(caller: _Caller) -> None:
    op, text = caller.op, caller.text
    rows, columns, steps = caller.rows, caller.columns, min(caller.rows, caller.columns)
    (transposed, pivots), report = caller.scratch, caller.info()
    width = 8 if caller.integer == "i64" else 4

    def write(pointers: list[str]) -> None:
        matrix, factors, chosen, failed = pointers
        caller.transpose(matrix, transposed, rows, columns)
        caller.call(
            "getrf", caller.number(rows), caller.number(columns), transposed, caller.number(rows), pivots, report
        )
        caller.transpose(transposed, factors, columns, rows)
        step, _ = text.open_loop()
        source = caller.at(pivots, text.value(f"mul i64 {step}, {width}"))
        caller.as_i32(source, caller.at(chosen, text.value(f"mul i64 {step}, 4")))
        text.close_loop(steps)
        caller.as_i32(report, failed)

    caller.each([*op.operands, *op.results], write)


def _is_geqrf(op: Op) -> bool:
    if not _are_matrices(op.operands):
        return False
    rows, columns = op.operands[0].tensor.static_shape[-2:]
    return _are_of(op, [(rows, columns)], [(rows, columns), (min(rows, columns),)], 0)


@_target("geqrf", _is_geqrf, _block_bytes)
def _(caller: _Caller) -> None:
    caller.in_place_of(caller.op.operands[0], caller.op.results[0])
    size = _BLOCK * max(caller.rows, caller.columns)
    (memory,), report = caller.scratch, caller.info()
    rows, columns = caller.number(caller.rows), caller.number(caller.columns)

    def write(pointers: list[str]) -> None:
        caller.call("gelqf", columns, rows, pointers[0], columns, pointers[1], memory, caller.number(size), report)

    caller.each(caller.op.results, write)


def _is_orgqr(op: Op) -> bool:
    if len(op.operands) != 2 or not _are_matrices(op.operands[:1]) or not op.operands[1].tensor.rank:
        return False
    rows, columns = op.operands[0].tensor.static_shape[-2:]
    reflectors = op.operands[1].tensor.static_shape[-1]
    shapes = [(rows, columns), (reflectors,)]
    return rows >= columns >= reflectors > 0 and _are_of(op, shapes, shapes[:1], 0)


@_target("orgqr", _is_orgqr, _block_bytes)
def _(caller: _Caller) -> None:
    op = caller.op
    caller.in_place_of(op.operands[0], op.result)
    size = _BLOCK * max(caller.rows, caller.columns)
    (memory,), report = caller.scratch, caller.info()
    rows, columns = caller.number(caller.rows), caller.number(caller.columns)
    count = caller.number(op.operands[1].tensor.static_shape[-1])

    def write(pointers: list[str]) -> None:
        factors, result = pointers
        caller.call("orglq", columns, rows, count, result, columns, factors, memory, caller.number(size), report)

    caller.each([op.operands[1], op.result], write)


# --- triangular systems ----------------------------------------------------------------------------------------------


def _is_system(op: Op) -> bool:
    return len(op.operands) == 2 and len(op.results) == 1 and _are_matrices([*op.operands, op.result])


def _is_trsm(op: Op) -> bool:
    options = {"uplo": "LU", "side": "LR", "diag": "NU", "trans_x": "NTC"}
    if not _is_system(op) or not all(_option(op, name, letters) for name, letters in options.items()):
        return False
    left, right = (value.tensor.static_shape for value in op.operands)
    side = right[-2] if _option(op, "side", "LR") == "L" else right[-1]
    return left == (*right[:-2], side, side) and op.result.type == op.operands[1].type


@_target("trsm", _is_trsm)
def _(caller: _Caller) -> None:
    op = caller.op
    _solve(
        caller,
        left=_option(op, "side", "LR") == "L",
        lower=_option(op, "uplo", "LU") == "L",
        unit=_option(op, "diag", "NU") == "U",
        transposed=_option(op, "trans_x", "NTC") != "N",
    )


@native("stablehlo.triangular_solve", _is_system)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    caller, op = _Caller(writer, step), step.op
    transposed = op["transpose_a"] != "NO_TRANSPOSE"
    _solve(caller, left=op["left_side"], lower=op["lower"], unit=op["unit_diagonal"], transposed=transposed)


def _solve(caller: _Caller, *, left: bool, lower: bool, unit: bool, transposed: bool) -> None:
    op = caller.op
    caller.in_place_of(op.operands[1], op.result)
    rows, columns = op.result.tensor.static_shape[-2:]
    triangle, diagonal = caller.flag("U" if lower else "L"), caller.flag("U" if unit else "N")
    size = caller.number(caller.rows)

    def write(pointers: list[str]) -> None:
        matrix, solution = pointers
        if left and columns == 1:
            way = caller.flag("N" if transposed else "T")
            caller.call("trsv", triangle, way, diagonal, size, matrix, size, solution, caller.number(1))
            return
        side, way = caller.flag("R" if left else "L"), caller.flag("T" if transposed else "N")
        counts = caller.number(columns), caller.number(rows)
        leading = caller.number(columns)
        caller.call("trsm", side, triangle, way, diagonal, *counts, caller.one(), matrix, size, solution, leading)

    caller.each([op.operands[0], op.result], write)
