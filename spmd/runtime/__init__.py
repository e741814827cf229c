"""Execution: executables, processes, streams."""
