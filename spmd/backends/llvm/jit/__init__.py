"""From LLVM IR to running code: processors, compilation, caching, loading, and the entry from Python.

The content of the code is decided in the other folders.
"""
