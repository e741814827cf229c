"""Fourier transforms along the last dimension as native code, on split complex data, of any length.

Multidimensional transforms are expanded by a pass.
"""
