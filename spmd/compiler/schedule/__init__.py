"""What runs when, in which memory and in how many tasks: a block's schedule, made once and read by all others.

Here belongs what decides; code is written by the back ends, and neither a target's instructions nor Python's calls are
found here.
"""
