"""Matrix products and convolutions as native code: BLAS calls, and our own micro-kernels.

Matrix-vector products are reductions, and are not here.
"""
