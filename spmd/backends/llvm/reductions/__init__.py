"""Reductions of loop nests as native code: blocks, lanes, columns and small axes.

Prefix sums, each step of which is a result, are in ops.
"""
