"""LLVM's text to machine code in this process.

`compile_object` makes an object file of a module's text, `compile_ir` also loads it. There is next to no optimizing:
the text is vectorized and fused already, and more passes took a quarter of the time without making code any quicker.
No pass may change a result's bits; none is told that it may ("fast math").
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

#: LLVM's own tables are not made for several threads, and libraries are named one after another.
_LOCK = threading.RLock()
_NUMBERS = itertools.count()
_LIBRARIES = 64
#: Counts the ways in which modules were ever compiled: code that was kept is of the one way.
_PASSES = 4
#: The variable that has each text verified as it is written, also where its code is kept from an earlier time.
CHECK_VARIABLE = "SPMD_CHECK_IR"


@dataclass(frozen=True)
class ObjectCode:
    """An object file's bytes, and the functions it defines for others to call."""

    image: bytes
    functions: tuple[str, ...]


class Library:
    """Code loaded into this process. It is unloaded with the object: who calls an address keeps the library."""

    def __init__(
        self, session: llvm.LLJIT, tracker: llvm.ResourceTracker, functions: Iterable[str], used: Iterable[Library]
    ) -> None:
        self._tracker = tracker  # first: attributes go in their order, and the session after what is loaded in it
        self._session = session
        self._used = tuple(used)
        self._addresses = {name: int(tracker[name]) for name in functions}

    def address(self, name: str) -> int:
        """Return where the function `name` stands; KeyError when the library has none."""
        return self._addresses[name]


def one_a_process(make: Callable[[], Library]) -> Callable[[], Library]:
    """`make`, called once, whichever threads ask at the same time: functools.cache would have each make one, and of
    those that it does not keep the code goes away under who calls it."""
    lock, made = threading.Lock(), cache(make)

    @wraps(make)
    def library() -> Library:
        with lock:
            return made()

    return library


def compile_ir(text: str, symbols: Mapping[str, int], *, uses: Iterable[Library] = ()) -> Library:
    """Compile a module of LLVM's text for this process's processor and loads it.

    `symbols` are the addresses of what the text declares and does not define; what is not among them is looked for in
    the process (the C library's functions). `uses` are libraries that must live as long as this one. NativeCodeError,
    with LLVM's message, for a text that is no module, RuntimeError for a symbol that is nowhere; LLVM names that one on
    stderr.
    """
    return load_object(compile_object(text), symbols, uses=uses)


def compile_object(text: str, processor: Processor | None = None) -> ObjectCode:
    """Return the object file of a module of LLVM's text, for `processor` (this process's unless told); kept on disk."""
    return compile_together([text], processor)[0]


def compile_together(texts: Sequence[str], processor: Processor | None = None) -> list[ObjectCode]:
    """Object files that define what modules of LLVM's text do; no two of them may define the same.

    Those that are not on disk are one object file, which is kept as that of each: to begin with a module takes longer
    than a short function does.
    """
    processor = processor or chosen()
    kept = user_cache()
    keys = [_key(text, processor) for text in texts]
    contents = [None if kept is None else kept.get(key) for key in keys]
    if os.environ.get(CHECK_VARIABLE) == "1":
        for text, content in zip(texts, contents, strict=True):
            if content is not None:  # what is compiled is verified in any case
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
    """What tells one object file from every other: the text, the processor, and who makes code of them."""
    return hashlib.sha256(f"{made_by(processor)}\n{text}".encode()).hexdigest()


def made_by(processor: Processor) -> str:
    """What machine code depends on beside its text."""
    return f"{_PASSES} {llvm.llvm_version_info} {llvmlite.__version__} {processor.key}"


def compile_module(text: str, processor: Processor) -> ObjectCode:
    """Return the object file of a module of LLVM's text, for `processor`; made anew."""
    with _LOCK:
        module = _verified(text, processor)
        machine = _machine(processor, optimizing=_is_optimized(module))
        module.triple = processor.triple
        module.data_layout = str(machine.target_data)
        _simplify(module, machine)
        return ObjectCode(bytes(machine.emit_object(module)), tuple(_exported(module)))


def verify(text: str, processor: Processor) -> None:
    """Raise NativeCodeError, with LLVM's message, for a text that is no module; no code is made of it."""
    with _LOCK:
        _verified(text, processor)


def _verified(text: str, processor: Processor) -> llvm.ModuleRef:
    """Return the module of LLVM's `text`, as `processor` needs it, once LLVM has verified it."""
    if not processor.has_half and "half" in text:
        text += half.FUNCTIONS
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise NativeCodeError(f"LLVM does not take the native code: {str(error).strip()}") from None
    return module


def load_object(code: ObjectCode, symbols: Mapping[str, int], *, uses: Iterable[Library] = ()) -> Library:
    """Load what `compile_object` made; see `compile_ir`."""
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
    """Scalars out of memory. What else there is to simplify the code generator finds by itself, in less time."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


def _is_optimized(module: llvm.ModuleRef) -> bool:
    """Return whether any function of `module` is to be optimized. Where none is, the code generator's passes for that
    are not even set up, which takes longer than to compile a short function.
    """
    defined = (function for function in module.functions if not function.is_declaration)
    return any(b"optnone" not in b" ".join(function.attributes).split() for function in defined)


@cache
def _machine(processor: Processor, *, optimizing: bool) -> llvm.TargetMachine:
    return target_machine(processor, optimizing=optimizing)


@lru_cache(maxsize=1)
def _session(number: int) -> llvm.LLJIT:
    """Return where libraries are loaded: one after another, each for `_LIBRARIES` of them.

    LLVM keeps 12 KB of every library that was unloaded for as long as its session lives, and llvmlite has no way to
    have it forget them. A session lives until the last of its libraries is unloaded.

    JITLink lays the sections of an object side by side. The older linker lets each lie where there is room, and ends
    the process when they come to lie more than 2 GiB apart, as happens in processes with many mappings.
    """
    return llvm.create_lljit_compiler(target_machine(host()), use_jit_link=True)
