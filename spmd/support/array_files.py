"""NumPy's array files, `.npy` and `.npz`, read as untrusted input."""

from __future__ import annotations

import warnings
import zipfile
from os import PathLike, fspath

import numpy as np

from spmd.errors import ArrayFileError
from spmd.support.arrays import Array
from spmd.support.signal_handlers import raised_in_handler


def read_arrays(path: str | PathLike[str], *, mapped: bool = False) -> dict[str, Array]:
    """The arrays of a file by name, in order; the array of an `.npy` file has the name "".

    If `mapped`, that array is a read-only memory map. Raises ArrayFileError for a file that cannot be
    read, is damaged, or holds something other than arrays. Pickled objects are not read.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the contents of a damaged header: the error suffices
            content = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"": content}
        with content:
            arrays = {name: content[name] for name in content.files}
    except Exception as error:  # NumPy, zipfile, zlib and ast each raise errors of their own for damaged files
        if raised_in_handler(error):
            raise
        raise ArrayFileError(f"{fspath(path)}: {_reason(error)}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ArrayFileError(f"{fspath(path)}: {name!r} in it is no array of NumPy")
    return arrays


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        return f"cannot be read: {error.strerror}"
    if "pickle" in str(error):
        return "not an array file of NumPy (.npy or .npz), or one of pickled objects, which are not read"
    if isinstance(error, zipfile.BadZipFile | EOFError | ValueError):
        return f"not an array file of NumPy (.npy or .npz), or damaged: {_first_line(error)}"
    return f"not an array file of NumPy (.npy or .npz), or damaged: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
