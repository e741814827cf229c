"""The addresses of buffers in native code, and memory that is filled.

Here belongs what addresses memory. Where values lie is decided in spmd.compiler.schedule; the loads and stores
themselves stand in loops.
"""
