"""Files that are not text: MLIR bytecode and VHLO, what jax.export writes, PyTorch/XLA's saved programs."""
