"""What runs: executables, processes, streams."""
