"""Matrix products and convolutions as native code: calls of BLAS, and micro-kernels of our own.

Here belongs what multiplies matrices, and what is computed tile by tile beside it. Products that are reductions do not.
"""
