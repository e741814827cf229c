"""Loop nests as native code: lanes, loads, stores, and the loops around them.

Here belongs what serves any loop nest. What combines elements to fewer stands in reductions, products in matmul.
"""
