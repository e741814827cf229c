"""Reductions of loop nests as native code: blocks of partial results, lanes combined, columns and small axes.

Here belongs how a combiner is applied over an axis. Running totals, whose every step is a result, stand in ops.
"""
