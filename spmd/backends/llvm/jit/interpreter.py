"""What native code calls of the interpreter, and how it ends such a call."""

from __future__ import annotations

import ctypes

#: The end of a function that has called Python: `%result` is an object, or null where an exception was raised, `%state`
#: what PyGILState_Ensure gave. Its i32 is 0 if all is well.
ANSWER = """  %raised = icmp eq ptr %result, null
  br i1 %raised, label %done, label %release
release:
  call void @Py_DecRef(ptr %result)
  br label %done
done:
  call void @PyGILState_Release(i32 %state)
  %answer = zext i1 %raised to i32
  ret i32 %answer
}"""


def interpreter_symbols(*names: str) -> dict[str, int]:
    """Return the addresses of functions of CPython's C interface, by their names."""
    addresses = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in names}
    assert all(addresses.values())
    return {name: address or 0 for name, address in addresses.items()}
