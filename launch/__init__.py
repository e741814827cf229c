"""The command line, and starting ranks under MPI."""
