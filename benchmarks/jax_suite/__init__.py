"""Run JAX's own tests on spmd's client and on XLA's: ``python -m benchmarks.jax_suite --folder JAX/tests``."""
