"""The same computations written by hand in NumPy (and mpi4py): plain code as a good programmer would write it."""
