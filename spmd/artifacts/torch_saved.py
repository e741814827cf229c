"""Reads models saved by PyTorch/XLA: functions, their weights, and the roles of arguments.

    data/NAME  constants/NUMBER      arrays in NumPy's format
    functions/NAME.meta .bytecode .mlir

Source: pytorch/xla, torch_xla/stablehlo.py, `save_as_stablehlo`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from spmd import types as t
from spmd.artifacts.bytecode import read_bytecode
from spmd.artifacts.signature import put_constants, set_arguments, unused_argument
from spmd.dialects.func import function_fault
from spmd.errors import ArrayFileError, ParseError
from spmd.ir import Module, Value
from spmd.support.array_files import read_arrays
from spmd.support.arrays import Array
from spmd.syntax import parse

_INPUT, _PARAMETER, _CONSTANT = "input_arg", "parameter", "constant"
_DTYPES = {
    "float32": "f32", "float64": "f64", "double": "f64", "float16": "f16", "half": "f16", "bfloat16": "bf16",
    "int64": "i64", "long": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "ui8", "bool": "i1",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip


def read_saved(folder: Path) -> Module:
    """Return the folder's function with bound weights: @main takes the model's inputs only, flattened.

    Of several functions it is `forward`. Raises ParseError, naming the file, if something is missing or malformed.
    """
    return _Folder(folder).module()


@dataclass(frozen=True)
class _Location:
    """The source of an argument."""

    kind: str
    position: int
    name: str


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = sorted(file.stem for file in (folder / "functions").glob("*.meta"))
        self._name = "forward" if "forward" in names else names[0]
        if len(names) > 1 and self._name != "forward":
            raise ParseError(f"{folder}: must have one function, or one named forward, got {', '.join(names)}")
        self._meta_file = folder / "functions" / f"{self._name}.meta"
        self._meta = self._json()

    def fail(self, message: str) -> NoReturn:
        raise ParseError(f"{self._meta_file}: {message}")

    def _json(self) -> dict[str, Any]:
        try:
            meta = json.loads(self._meta_file.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            self.fail(f"cannot be read: {error}")
        if not isinstance(meta, dict):
            self.fail("must describe a function")
        return meta

    # --- the function ------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        module = self._code()
        functions = [function for function in module.functions if function.symbol == "main"] or module.functions[:1]
        if not functions or functions[0].is_declaration:
            self.fail("the module must have a function")
        (main,) = functions
        fault = function_fault(main)
        if fault is not None:
            self.fail(f"@{main.symbol}: {fault}")
        locations = self._locations()
        if len(locations) != len(main.arguments):
            self.fail(f"{len(locations)} input_locations for {len(main.arguments)} arguments of the function")
        inputs: dict[int, Value] = {}
        bound = []
        for location, argument in zip(locations, main.arguments, strict=True):
            if location.kind == _INPUT:
                if location.position in inputs:
                    self.fail(f"two arguments are input {location.position}")
                inputs[location.position] = argument
            else:
                argument.name_hint = location.name.replace(".", "_") or None
                bound.append((argument, self._array(location, argument.type)))
        for position, type in self._unused():
            inputs.setdefault(position, unused_argument(type))
        put_constants(main, bound)
        order = sorted(inputs)
        set_arguments(main, [inputs[position] for position in order], [f"input_{position}" for position in order])
        return module

    def _code(self) -> Module:
        binary = self._folder / "functions" / f"{self._name}.bytecode"
        text = self._folder / "functions" / f"{self._name}.mlir"
        try:
            if binary.exists():
                return read_bytecode(binary.read_bytes(), str(binary))
            return parse(text.read_bytes(), str(text))
        except OSError as error:
            raise ParseError(f"{error.filename}: {error.strerror}") from None

    def _locations(self) -> list[_Location]:
        entries = self._meta.get("input_locations")
        if not isinstance(entries, list):
            self.fail("input_locations must be a list")
        return [self._location(entry) for entry in entries]

    def _location(self, entry: object) -> _Location:
        if not isinstance(entry, dict):
            self.fail(f"a location must be a dictionary, got {entry!r}")
        kind, position, name = entry.get("type_"), entry.get("position", -1), entry.get("name", "")
        if kind not in (_INPUT, _PARAMETER, _CONSTANT) or not isinstance(position, int) or not isinstance(name, str):
            self.fail(f"a location must have type_, position and name, got {entry!r}")
        if kind != _PARAMETER and position < 0:
            self.fail(f"a position must not be negative, got {position}")
        return _Location(kind, position, name)

    def _unused(self) -> list[tuple[int, t.Type]]:
        """Return the inputs of the model that the function lacks: (position, type)."""
        unused: list[tuple[int, t.Type]] = []
        for entry in self._meta.get("unused_inputs") or ():
            if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], dict):
                self.fail(f"an unused input must have a location and a signature, got {entry!r}")
            location, signature = self._location(entry[0]), entry[1]
            shape, dtype = signature.get("shape"), _DTYPES.get(str(signature.get("dtype")))
            if not isinstance(shape, list) or dtype is None:
                continue  # not an array: Python numbers are constants of the program
            if not all(isinstance(size, int) and size >= 0 for size in shape):
                self.fail(f"a shape must be a list of sizes, got {shape}")
            unused.append((location.position, t.TensorType(tuple(shape), t.ELEMENT_TYPES[dtype])))
        return unused

    # --- arrays ------------------------------------------------------------------------------------------------------

    def _array(self, location: _Location, type: t.Type) -> Array:
        """Return the weight or constant as a view of its file."""
        name = location.name if location.kind == _PARAMETER else str(location.position)
        if not name or Path(name).name != name or name in (".", ".."):
            self.fail(f"{name!r} must be the name of a file with weights")
        file = self._folder / ("data" if location.kind == _PARAMETER else "constants") / name
        try:
            array = read_arrays(file, mapped=True).get("")
        except ArrayFileError as error:
            raise ParseError(str(error)) from None
        if array is None:
            raise ParseError(f"{file}: must hold one array, got several")
        if not _holds(type, array):
            raise ParseError(f"{file}: an array of {array.dtype} and shape {array.shape} where {type} is needed")
        plain = np.asarray(array)
        plain.flags.writeable = False
        return plain


def _holds(type: t.Type, array: Array) -> bool:
    """Return whether `array` is a valid value of `type`."""
    if not isinstance(type, t.TensorType) or array.shape != type.shape:
        return False
    element = type.element_type
    element = element.storage if isinstance(element, t.QuantizedType) else element
    return isinstance(element, t.ElementType) and element.numpy is not None and array.dtype == element.dtype
