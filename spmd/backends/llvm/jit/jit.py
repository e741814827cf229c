"""JIT compilation of LLVM IR in this process.

`compile_object` compiles a module to an object file, `compile_ir` also loads it. There are almost no optimization
passes: the IR is vectorized and fused already, and more passes took a quarter of the time without faster code. No pass
changes results: there are no fast-math flags.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, wraps

import llvmlite
import llvmlite.binding as llvm

from spmd.backends.llvm.jit import half
from spmd.backends.llvm.jit.processor import chosen, host, target_machine
from spmd.errors import NativeCodeError
from spmd.support.compiled_cache import user_cache
from spmd.support.processor import Processor

#: LLVM's global state is not thread safe, and library names are numbered.
_LOCK = threading.RLock()
_NUMBERS = itertools.count()
_LIBRARIES = 64
#: Version of the compilation pipeline, part of the cache key.
_PASSES = 4
#: The variable that enables verification of all IR, also if its object code is cached.
CHECK_VARIABLE = "SPMD_CHECK_IR"


@dataclass(frozen=True)
class ObjectCode:
    """An object file's bytes, and the functions it exports."""

    image: bytes
    functions: tuple[str, ...]


class Library:
    """Code loaded into this process, unloaded with this object: keep it alive while its addresses are in use."""

    def __init__(
        self, session: llvm.LLJIT, tracker: llvm.ResourceTracker, functions: Iterable[str], used: Iterable[Library]
    ) -> None:
        self._tracker = tracker  # first: attributes are released in order, and the session must outlive the tracker
        self._session = session
        self._used = tuple(used)
        self._addresses = {name: int(tracker[name]) for name in functions}

    def address(self, name: str) -> int:
        """Return the address of function `name`; KeyError if it is not exported."""
        return self._addresses[name]


def once_per_process(make: Callable[[], Library]) -> Callable[[], Library]:
    """Cache `make` with a lock: concurrent first calls of functools.cache would each make a library, and unload all but
    one of them while in use.
    """
    lock, made = threading.Lock(), cache(make)

    @wraps(make)
    def library() -> Library:
        with lock:
            return made()

    return library


def compile_ir(text: str, symbols: Mapping[str, int], *, uses: Iterable[Library] = ()) -> Library:
    """Compile LLVM IR for this process's processor and load it.

    `symbols` are the addresses of externals; others are resolved in the process (C library functions). `uses` are
    libraries to keep alive. NativeCodeError, with LLVM's message, for invalid IR; RuntimeError for an unresolved
    symbol, which LLVM names on stderr.
    """
    return load_object(compile_object(text), symbols, uses=uses)


def compile_object(text: str, processor: Processor | None = None) -> ObjectCode:
    """Return LLVM IR compiled to an object file for `processor` (default: this process's), cached on disk."""
    return compile_together([text], processor)[0]


def compile_together(texts: Sequence[str], processor: Processor | None = None) -> list[ObjectCode]:
    """Return object files that define the functions of LLVM IR modules, which must not define the same symbols.

    Those not in the cache are compiled to one object file, stored under each key: setting up a module takes longer than
    compiling a short function.
    """
    processor = processor or chosen()
    kept = user_cache()
    keys = [_key(text, processor) for text in texts]
    contents = [None if kept is None else kept.get(key) for key in keys]
    if os.environ.get(CHECK_VARIABLE) == "1":
        for text, content in zip(texts, contents, strict=True):
            if content is not None:  # compilation verifies as well
                verify(text, processor)
    missing = [text for text, content in zip(texts, contents, strict=True) if content is None]
    new = compile_module("\n".join(missing), processor) if missing else None
    codes = []
    for key, content in zip(keys, contents, strict=True):
        code = new if content is None else _decoded(content)
        assert code is not None
        if kept is not None and content is None:
            kept.put(key, _encoded(code))
        codes.append(code)
    return codes


def _encoded(code: ObjectCode) -> bytes:
    names = "\n".join(code.functions).encode()
    return len(names).to_bytes(8, "little") + names + code.image


def _decoded(content: bytes) -> ObjectCode:
    count = int.from_bytes(content[:8], "little")
    return ObjectCode(content[8 + count :], tuple(content[8 : 8 + count].decode().split("\n")) if count else ())


def _key(text: str, processor: Processor) -> str:
    """Return the cache key of an object file: IR, processor and compiler versions."""
    return hashlib.sha256(f"{made_by(processor)}\n{text}".encode()).hexdigest()


def made_by(processor: Processor) -> str:
    """Return what machine code depends on besides its IR."""
    return f"{_PASSES} {llvm.llvm_version_info} {llvmlite.__version__} {processor.key}"


def compile_module(text: str, processor: Processor) -> ObjectCode:
    """Return LLVM IR compiled to an object file for `processor`, without the cache."""
    with _LOCK:
        module = _verified(text, processor)
        machine = _machine(processor, optimizing=_is_optimized(module))
        module.triple = processor.triple
        module.data_layout = str(machine.target_data)
        _simplify(module, machine)
        return ObjectCode(bytes(machine.emit_object(module)), tuple(_exported(module)))


def verify(text: str, processor: Processor) -> None:
    """Raise NativeCodeError, with LLVM's message, for invalid IR."""
    with _LOCK:
        _verified(text, processor)


def _verified(text: str, processor: Processor) -> llvm.ModuleRef:
    """Return the parsed and verified module of LLVM IR; f16 conversions are added if `processor` lacks them.

    It has a context of its own: types and constants are freed with the context, not with the module.
    """
    if not processor.has_half and "half" in text:
        text += half.FUNCTIONS
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise NativeCodeError(f"LLVM rejects the native code: {str(error).strip()}") from None
    return module


def load_object(code: ObjectCode, symbols: Mapping[str, int], *, uses: Iterable[Library] = ()) -> Library:
    """Load an object file; see `compile_ir`."""
    with _LOCK:
        builder = llvm.JITLibraryBuilder().add_object_img(code.image).add_current_process()
        for symbol, address in symbols.items():
            builder.import_symbol(symbol, address)
        for name in code.functions:
            builder.export_symbol(name)
        number = next(_NUMBERS)
        session = _session(number // _LIBRARIES)
        return Library(session, builder.link(session, f"spmd.{number}"), code.functions, uses)


def _exported(module: llvm.ModuleRef) -> Iterator[str]:
    for function in module.functions:
        if not function.is_declaration and function.linkage == llvm.Linkage.external:
            yield function.name


def _simplify(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Promote memory to registers (SROA). The code generator simplifies the rest in less time."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


def _is_optimized(module: llvm.ModuleRef) -> bool:
    """Return whether any function of `module` is optimized. If none is, the code generator's passes are not set up,
    which takes longer than compiling a short function.
    """
    defined = (function for function in module.functions if not function.is_declaration)
    return any(b"optnone" not in b" ".join(function.attributes).split() for function in defined)


@cache
def _machine(processor: Processor, *, optimizing: bool) -> llvm.TargetMachine:
    return target_machine(processor, optimizing=optimizing)


@lru_cache(maxsize=1)
def _session(number: int) -> llvm.LLJIT:
    """Return the JIT session of the libraries with number `number`, shared by `_LIBRARIES` of them.

    LLVM keeps 12 KB per unloaded library until the end of the session, so sessions are replaced; a session lives until
    its last library is unloaded. JITLink places the sections of an object together. The older linker places each
    separately, and aborts the process if they are more than 2 GiB apart, as happens in processes with many mappings.
    """
    return llvm.create_lljit_compiler(target_machine(host()), use_jit_link=True)
