"""Static check of communication: which values differ between processes, deadlocks, and sums of equal values.

The analysis reads a program once, before it runs. Programs that differ between processes are checked by `matching`,
which follows the communication of each process in order.
"""
