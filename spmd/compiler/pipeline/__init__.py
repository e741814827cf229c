"""Compilation from end to end: options, verification, the order of the passes, lowering and the compilation cache.

Each pass itself is in transforms, scheduling in schedule.
"""
