"""Access of native code to the Python interpreter."""

from __future__ import annotations

import ctypes

#: The end of a function that has called Python: `%result` is an object, or null after an exception, `%state` is of
#: PyGILState_Ensure. It returns an i32, 0 on success.
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
    """Return the addresses of functions of CPython's C API by name."""
    addresses = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in names}
    assert all(addresses.values())
    return {name: address or 0 for name, address in addresses.items()}
