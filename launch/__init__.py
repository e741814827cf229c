"""The command line, and the start of MPI ranks."""
