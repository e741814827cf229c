"""Benchmarks: each compares spmd with a peer on the same arrays, alternating within one run."""
