"""Predicts the time and memory of programs on any machine and number of processes."""
