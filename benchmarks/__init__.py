"""Benchmarks: each measures spmd beside a peer, on the same arrays, in the same run, in turns."""
