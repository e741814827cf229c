"""The same computations written by hand in NumPy (and mpi4py), in plain idiomatic code."""
