"""Ops with a native form of their own: control flow, LAPACK, running totals, the largest elements, calls of Python.

Here belongs what is neither a loop nest nor a product nor a Fourier transform.
"""
