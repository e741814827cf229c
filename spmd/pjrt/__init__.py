"""spmd as a client of PJRT's C interface, in Python: what JAX computes with where JAX_PLATFORMS is spmd.

Functions of the interface are machine code that LLVM makes: those that give a fact of a handle read it where it is, the
others cross into Python. `api.capsule()` is what a frontend registers.
"""
