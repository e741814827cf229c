"""NumPy's files of arrays, `.npy` and `.npz`, read with suspicion: anything may be in a file."""

from __future__ import annotations

import warnings
import zipfile
from os import PathLike, fspath

import numpy as np

from spmd.errors import ArrayFileError
from spmd.support.arrays import Array
from spmd.support.signal_handlers import raised_in_handler


def read_arrays(path: str | PathLike[str], *, mapped: bool = False) -> dict[str, Array]:
    """The arrays of a file by name, in order; the one of an `.npy` file has the name "".

    Where `mapped`, that one is seen in its file and cannot be written. Raises ArrayFileError for a file that cannot be
    read, is damaged, or holds something other than arrays. Pickled objects are not read.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a damaged header holds: the error tells enough
            content = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"": content}
        with content:
            arrays = {name: content[name] for name in content.files}
    except Exception as error:  # NumPy, zipfile, zlib and ast each raise their own at what is damaged
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
