"""Analyses of programs, shared by the partitioner, the compiler and the back ends."""
