"""Execution plans: a scheduled block as steps, its donated buffers, and the Python function that runs them.

Which ops form a unit is decided in schedule.
"""
