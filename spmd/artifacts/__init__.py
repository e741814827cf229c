"""Binary program files: MLIR bytecode and VHLO, files of jax.export, and saved programs of PyTorch/XLA."""
