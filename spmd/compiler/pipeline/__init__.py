"""Compiling from beginning to end: options, verification, the order of the passes, lowering, the compilation cache.

Here belongs what joins stages. A single pass stands in transforms, what decides what runs in schedule.
"""
