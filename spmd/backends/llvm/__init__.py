"""The LLVM back end: native code from the schedule."""
