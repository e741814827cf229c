"""Signatures of built-in custom call targets, declared like ops.

Sources: LAPACK's and JAX's routines by their names (jaxlib's lapack_*_ffi and their lowering in jax.lax.linalg),
jax.experimental.sparse's, XLA's own targets, and the ops that frontends write as calls (mhlo.*, stablehlo.dynamic_*).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from spmd.dialects.checks import compatible_dims, compatible_shapes, compatible_types, element_of, listed
from spmd.dialects.core import OPS, Constraint
from spmd.dialects.custom_call import CUSTOM_CALL
from spmd.dialects.faults import faults
from spmd.dialects.make import make_op
from spmd.dialects.signatures import LETTERS, signature_fault
from spmd.ir import AttributeValue, Op, Value
from spmd.ir.attributes import ArrayAttr, DictAttr
from spmd.types import I1, ElementType, TensorType, TupleType, Type, storage_range

#: Targets that return their operands: hints on placement.
HINTS = frozenset(
    {
        "Sharding",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.PropagationBarrier",
        "LayoutConstraint",
        "MoveToHost",
        "MoveToDevice",
        "annotate_device_placement",
        "AssumeGatherIndicesInBound",
        "AssumeReplicated",
        "OptimizationBarrier",
    }
)
#: Hints that convert between global and per-process values.
PARTS = frozenset(
    {"SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape", "xla.sdy.GlobalToLocalShape"}
)
#: Targets with user code, which overrides built-ins of the same name and checks its own operands.
REGISTERED: set[str] = set()

#: Checks the types of a call: (operands, results, options).
_Rule = Callable[[Sequence[Type], Sequence[Type], Mapping[str, object]], str | None]
_RULES: dict[str, _Rule] = {}

_LAPACK = re.compile(r"lapack_([sdcz])(\w+)_ffi")


def _fault(op: Op) -> str | None:
    """Return the fault of a call of a built-in target, or None."""
    name = op["call_target_name"]
    if name in REGISTERED:
        return None
    called = called_op(op)
    if called is not None:
        return called if isinstance(called, str) else _op_fault(called)
    rule = _RULES.get(name)
    if rule is None:
        return None
    operands = _without_shapes(op)
    fault = None if operands is None else rule([value.type for value in operands], op.result_types, options(op))
    return fault or (_columns_fault(op) if is_by_columns(name) else None)


def is_by_columns(target: str) -> bool:
    """Return whether a target uses column-major matrices: LAPACK's, and equivalent ones."""
    return _LAPACK.fullmatch(target) is not None or target == "tridiagonal_solve_perturbed_ffi"


def _columns_fault(op: Op) -> str | None:
    """Return the fault of the layouts, if given, of a call with column-major matrices.

    Each array of a batch must be contiguous, and matrices column-major.
    """
    types = [type for type in (*op.operand_types, *op.result_types) if isinstance(type, TensorType)]
    layouts = (*(op["operand_layouts"] or ()), *(op["result_layouts"] or ()))
    batch = max((type.rank for type in types), default=0) - 2  # each call has a matrix
    for type, layout in zip(types, layouts, strict=False):
        columns = [*range(batch, type.rank), *range(batch - 1, -1, -1)]
        if layout.tolist() != columns:
            return f"matrices must be column-major, {columns} from minor to major for {type}, got {layout.tolist()}"
    return None


class _TargetConstraint(Constraint):
    """Checks that a call of a built-in target matches its declared signature.

    It is checked when compiling, not when reading: a function may be registered under the name in between.
    """

    def fault(self, op: Op) -> str | None:
        broken = self.check(op)
        return None if broken is None else f"{op['call_target_name']}: {broken}"


CUSTOM_CALL.constraints.append(
    _TargetConstraint("", "a built-in target takes and gives what it declares", _fault, True, True, True)
)


def options(op: Op) -> Mapping[str, object]:
    """Return the options of a typed call: strings, numbers and booleans by name."""
    config = op.discardable.get("mhlo.backend_config", op["backend_config"])
    entries = config.entries if isinstance(config, DictAttr) else {}
    return {name: getattr(entry, "value", entry) for name, entry in entries.items()}


def _without_shapes(op: Op) -> Sequence[Value] | None:
    """Return the operands without those that are result shapes; None if these are invalid."""
    attribute = op.discardable.get("indices_of_shape_operands")
    if attribute is None:
        return op.operands
    array = getattr(attribute, "array", None)
    entries = array.ravel().tolist() if array is not None else None
    if entries is None and isinstance(attribute, ArrayAttr):
        entries = [getattr(entry, "value", None) for entry in attribute.elements]
    return None if entries is None else [value for index, value in enumerate(op.operands) if index not in entries]


def _signature(operands: Sequence[Type], results: Sequence[Type]) -> str:
    return f"({', '.join(map(str, operands))}) -> ({', '.join(map(str, results))})"


def _rule(*names: str) -> Callable[[_Rule], _Rule]:
    """Return a decorator that registers the check of calls of `names`."""

    def add(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return add


# --- ops written as calls --------------------------------------------------------------------------------------------

#: Ops that older frontends call by another name.
_RENAMED = {"mhlo.topk": "top_k"}


def called_op(op: Op) -> Op | str | None:
    """Return the CHLO or StableHLO op for a call `mhlo.<op>` of older frontends, with attributes `mhlo.attributes`.

    None for other calls; a string, the fault, for invalid attributes.
    """
    name = op["call_target_name"]
    if not name.startswith("mhlo."):
        return None
    short = _RENAMED.get(name, name.removeprefix("mhlo."))
    full = next((full for full in (f"chlo.{short}", f"stablehlo.{short}") if full in OPS), None)
    if full is None or any(declared for declared in OPS[full].regions):
        return None
    entries = op.discardable.get("mhlo.attributes")
    attributes: dict[str, AttributeValue] = {}
    for key, value in entries.entries.items() if isinstance(entries, DictAttr) else ():
        declared = OPS[full].attribute_table.get(key)
        if declared is None:
            if key == "largest" and getattr(value, "value", True) is False:
                return "attribute largest must be true, got false"
            continue
        try:
            attributes[key] = declared.kind.decode(value)
        except ValueError as error:
            return f"attribute {key}: {error}"
    return make_op(full, op.operands, op.result_types, attributes, location=op.location)


def _op_fault(called: Op) -> str | None:
    fault = next(faults(called, OPS[called.name]), None)
    return None if fault is None else f"{called.name}: {f'({fault[0]}) ' if fault[0] else ''}{fault[1]}"


# --- hints -----------------------------------------------------------------------------------------------------------


@_rule(*HINTS)
def _(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
    sound = len(operands) == len(results) and all(map(compatible_types, operands, results))
    return None if sound else f"gives its operands back, got {_signature(operands, results)}"


@_rule(*PARTS)
def _(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
    sound = len(operands) == len(results) and all(
        compatible_types(_without_sizes(one), _without_sizes(other))
        for one, other in zip(operands, results, strict=True)
    )
    return None if sound else f"gives its operands back, got {_signature(operands, results)}"


def _without_sizes(type: Type) -> Type:
    return TensorType((None,) * type.rank, type.element_type) if isinstance(type, TensorType) else type


@_rule("shape_assertion")
def _(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
    scalars = [type for type in operands if isinstance(type, TensorType) and type.rank == 0]
    sound = not results and len(scalars) == len(operands) > 0 and scalars[0].element_type is I1
    sound &= all(isinstance(e, ElementType) and e.is_integer for e in (type.element_type for type in scalars[1:]))
    return None if sound else f"it takes an i1 and integers, all scalars, got {_signature(operands, results)}"


# --- LAPACK ----------------------------------------------------------------------------------------------------------


def _letter(config: Mapping[str, object], name: str) -> str:
    """Return an option that is a character code as a string; "" if it is invalid."""
    code = config.get(name)
    return chr(code) if isinstance(code, int) and 0 < code < 128 else ""


def _singular(config: Mapping[str, object], is_complex: bool) -> str:
    u, vt = {"A": ("m m", "n n"), "N": ("p q", "r s")}.get(_letter(config, "mode"), ("m min(m,n)", "min(m,n) n"))
    return f"T m n -> T m n, R min(m,n), T {u}, T {vt}, i32"


def _schur(config: Mapping[str, object], is_complex: bool) -> str:
    return f"T n n -> T n n, T n n, {'C n' if is_complex else 'R n, R n'}, i32, i32"


def _eigen(config: Mapping[str, object], is_complex: bool) -> str:
    return f"T n n -> {'C n' if is_complex else 'R n, R n'}, C n n, C n n, i32"


def _multiplied(config: Mapping[str, object], is_complex: bool) -> str:
    side = "m" if config.get("left") else "n"
    return f"T {side} p, T k, T m n -> T m n where k <= p, k <= {side}"


def _triangular(config: Mapping[str, object], is_complex: bool) -> str:
    side = "m" if _letter(config, "side") == "L" else "n"
    return f"T {side} {side}, T m n -> T m n"


_GENERATED = "T m n, T k -> T m n where k <= n <= m"
_TRIDIAGONAL = "T n n -> T n n, R n, R n-1, T n-1, i32"
#: By routine, without the letter of its element type: its signature, or a function that returns it for options and
#: whether elements are complex.
_ROUTINES: dict[str, str | Callable[[Mapping[str, object], bool], str]] = {
    "getrf": "T m n -> T m n, i32 min(m,n), i32",
    "potrf": "T n n -> T n n, i32",
    "geqrf": "T m n -> T m n, T min(m,n)",
    "geqp3": "T m n, i32 n -> T m n, i32 n, T min(m,n)",
    "orgqr": _GENERATED,
    "ungqr": _GENERATED,
    "ormqr": _multiplied,
    "unmqr": _multiplied,
    "gehrd": "T n n -> T n n, T n-1, i32",
    "sytrd": _TRIDIAGONAL,
    "hetrd": _TRIDIAGONAL,
    "gesdd": _singular,
    "gesvd": _singular,
    "syevd": "T n n -> T n n, R n, i32",
    "heevd": "T n n -> T n n, R n, i32",
    "geev": _eigen,
    "gees": _schur,
    "trsm": _triangular,
    "gtsv": "T n, T n, T n, T n k -> T n, T n, T n, T n k, i32",
}


def _lapack_rule(letter: str, routine: str) -> _Rule:
    signature, element = _ROUTINES[routine], LETTERS[letter]

    def check(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
        text = signature if isinstance(signature, str) else signature(config, element.is_complex)
        fault = signature_fault(text, element, operands, results)
        if fault is not None:
            return f"the signature must be {text} on batches, with T = {element}, got {fault}"
        return _rows_fault(operands[0], config) if routine == "gehrd" else None

    return check


def _rows_fault(matrix: Type, config: Mapping[str, object]) -> str | None:
    """Check the options low and high: the first and last row, from 1, that are not upper triangular."""
    low, high = config.get("low"), config.get("high")
    size = matrix.shape[-1] if isinstance(matrix, TensorType) else None
    if not isinstance(low, int) or not isinstance(high, int) or size is None:
        return None
    sound = 1 <= low <= max(1, size) and min(low, size) <= high <= size
    return None if sound else f"1 <= low <= high <= {size}, got {low} and {high}"


_RULES.update({f"lapack_{letter}{name}_ffi": _lapack_rule(letter, name) for letter in LETTERS for name in _ROUTINES})


@_rule("tridiagonal_solve_perturbed_ffi")
def _(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
    text = "T n, T n, T n, T n k -> T n k"
    fault = signature_fault(text, None, operands, results)
    if fault is None and not any(element_of(operands[0]) is element for element in LETTERS.values()):
        fault = listed(operands)
    return None if fault is None else f"it is {text} of batches, got {fault}"


# --- other libraries -------------------------------------------------------------------------------------------------


@_rule("cpu_csr_sparse_dense_ffi")
def _(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
    tensors = [type for type in (*operands, *results) if isinstance(type, TensorType)]
    if len(tensors) == 5 and len(operands) == 4:
        values, starts, columns, dense, product = tensors
        integers = all(isinstance(t.element_type, ElementType) and t.element_type.is_integer for t in (starts, columns))
        ranks = values.rank == starts.rank == columns.rank == 1 and dense.rank == product.rank and dense.rank in (1, 2)
        if integers and ranks:
            rows = None if starts.shape[0] is None else starts.shape[0] - 1
            sound = compatible_shapes(values.shape, columns.shape) and compatible_dims(product.shape[0], rows)
            elements = values.element_type is dense.element_type is product.element_type
            if sound and elements and compatible_shapes(dense.shape[1:], product.shape[1:]):
                return None
    return f"the signature must be values, row starts, columns, dense -> product, got {_signature(operands, results)}"


@_rule("ApproxTopK")
def _(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
    count, dimension, most = len(results), config.get("reduction_dim"), config.get("top_k")
    if not isinstance(dimension, int) or not isinstance(most, int):
        return "reduction_dim and top_k must be integers"
    sound = len(operands) == 2 * count > 0
    for given, gives in zip(operands, results, strict=False):
        if not isinstance(given, TensorType) or not 0 <= dimension < given.rank:
            sound = False
            break
        size = given.shape[dimension]
        shape = (*given.shape[:dimension], most, *given.shape[dimension + 1 :])
        sound &= most >= 0 and (size is None or most <= size)
        sound &= compatible_types(TensorType(shape, given.element_type), gives) if most >= 0 else False
    return None if sound else f"the first {most} along {dimension}, got {_signature(operands, results)}"


@_rule("TopK")
def _(operands: Sequence[Type], results: Sequence[Type], config: Mapping[str, object]) -> str | None:
    gives = results[0].types if len(results) == 1 and isinstance(results[0], TupleType) else results
    sound = len(operands) == 1 and len(gives) == 2 and all(isinstance(type, TensorType) for type in (*operands, *gives))
    if sound:
        taken, values, places = (type for type in (*operands, *gives) if isinstance(type, TensorType))
        sound = taken.rank == values.rank > 0 and compatible_shapes(values.shape, places.shape)
    if sound:
        size, most, element = taken.shape[-1], values.shape[-1], places.element_type
        sound = compatible_types(values, TensorType((*taken.shape[:-1], most), taken.element_type))
        sound &= None in (size, most) or most <= size  # type: ignore[operator]
        sound &= isinstance(element, ElementType) and element.is_integer
        if sound and isinstance(element, ElementType) and (size or 0) - 1 > storage_range(element)[1]:
            return f"the places of {size} elements do not fit {element}"
    text = "it is an array -> the first of its last dimension in order, and their places"
    return None if sound else f"{text}, got {_signature(operands, results)}"


def is_declared(target: str) -> bool:
    """Return whether the signature of `target` is known."""
    return target in _RULES


#: Prefixes of the targets of libraries that XLA's optimizations call on GPUs and CPUs.
_OF_OPTIMIZATIONS = ("__cu", "__gpu$", "__triton", "__onednn$", "__oneDNN", "__fmha", "fusion_")


def unknown_target(name: str) -> str:
    """Return why a call of `name` cannot run, and what to do."""
    text = (
        f"no custom call target named {name!r}; spmd.register_custom_call({name!r}, function) makes it known: "
        "a function of Python, or one of C, void (void* out, void** in), that ctypes has loaded"
    )
    if name.startswith(_OF_OPTIMIZATIONS):
        text += (
            ". XLA's optimizations wrote it in place of an op: the program before these, *before_optimizations.txt of "
            "XLA_FLAGS=--xla_dump_to=FOLDER, or what JAX lowers, has the op"
        )
    return text
