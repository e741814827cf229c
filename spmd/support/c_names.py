"""Names that a C function may have: those that the compilers and libraries of C and C++ do not reserve."""

from __future__ import annotations

import ctypes
import re
from functools import cache

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS_TEXT = """
alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool break case catch char
char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit
continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if
inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile
wchar_t while xor xor_eq _Alignas _Alignof _Atomic _BitInt _Bool _Complex _Decimal128 _Decimal32 _Decimal64 _Generic
_Imaginary _Noreturn _Static_assert _Thread_local
"""
_MACROS_TEXT = "linux unix i386 NULL EOF errno assert offsetof va_list complex imaginary I"
#: Keywords of C23 and C++23.
_KEYWORDS = frozenset(_KEYWORDS_TEXT.split())
#: Macros and types that headers and compilers define, and that no library exports.
_MACROS = frozenset(_MACROS_TEXT.split())
_TYPES = re.compile(r"u?int(_fast|_least)?(8|16|32|64|max|ptr)_t|[A-Z]?INT\w*_(MAX|MIN|C)|size_t|ptrdiff_t|ssize_t")


def why_taken(name: str) -> str | None:
    """Why no C function can have this name; None where one can."""
    if not _IDENTIFIER.fullmatch(name):
        return "is no identifier of C"
    if name in _KEYWORDS:
        return "is a keyword of C or C++"
    if name == "main":
        return "is where a program of C begins"
    if name in _MACROS or _TYPES.fullmatch(name) or _is_exported(name):
        return "is a name of C's library"
    return None


def free_name(text: str) -> str:
    """A valid name of a C function, as near to `text` as possible."""
    name = re.sub(r"^(?=\d)|\W", "_", text, flags=re.ASCII) or "_"
    while why_taken(name) is not None:
        name += "_"
    return name


def _is_exported(name: str) -> bool:
    return any(hasattr(library, name) for library in _libraries())


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    """The C library and the math library, where they are found by name."""
    found = []
    for name in ("libc.so.6", "libm.so.6"):
        try:
            found.append(ctypes.CDLL(name))
        except OSError:  # the name is that of another system's library
            found.append(ctypes.CDLL(None))
    return tuple(found)
