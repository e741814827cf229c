"""What runs: executables, processes, streams, checkpoints."""
