"""Ops with code of their own: control flow, LAPACK, prefix sums, top_k, callbacks.

Loop nests, products and FFTs are in other packages.
"""
