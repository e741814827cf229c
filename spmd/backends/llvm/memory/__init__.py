"""Addresses of buffers in native code, and fills.

Buffers are assigned in spmd.compiler.schedule; loads and stores are in loops.
"""
