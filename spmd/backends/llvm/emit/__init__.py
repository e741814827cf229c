"""Emission of LLVM IR: functions, blocks, scalar expressions, and outlined functions.

Used by every emitter; how loops, reductions or products are arranged is decided elsewhere.
"""
