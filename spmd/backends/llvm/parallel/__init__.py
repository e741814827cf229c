"""Threads within a process: task functions, and the worker pool that runs them.

The split into tasks is decided in spmd.compiler.schedule; processes belong to collectives.
"""
