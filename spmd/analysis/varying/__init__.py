"""What is the same on all processes and what differs: communication that cannot end, or sums what is the same already.

Here belongs what is found of a program before it runs, by reading it once. Programs that differ by process are matched
in `matching`, where each process's communication is followed in its order.
"""
