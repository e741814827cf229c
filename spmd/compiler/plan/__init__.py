"""A scheduled block as steps: native regions and kernels, donated buffers, and the Python function that runs them.

Here belongs what turns units into calls. Which ops form a unit is decided in schedule.
"""
