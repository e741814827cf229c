"""Fourier transforms of any length as native code, on split real and imaginary parts.

Here belongs one transform along the last dimension. Transforms of several dimensions are expanded by a pass.
"""
