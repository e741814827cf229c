"""Loop nests as native code: lanes, loads, stores and loops.

Reductions are in reductions, products in matmul.
"""
