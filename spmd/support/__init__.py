"""Small helpers that every package uses: arrays, context variables, registries, the machine, checks of arguments.

These helpers are independent of programs; code that reads or changes programs is in other packages.
"""
