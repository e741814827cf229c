"""Small helpers that every package uses: arrays, context variables, registries, the machine, checks of arguments.

Here belongs what is independent of programs. What reads or changes a program stands in a package of its own.
"""
