"""From LLVM's text to machine code that runs: the processor, compiling, caching, loading, the entry from Python.

Here belongs what handles code as a whole. What the code says is written in the folders beside.
"""
