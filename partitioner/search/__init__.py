"""Layouts that nobody wrote: which axes of a mesh cut which dimensions, chosen by an integer program.

`building` makes groups of ops that share a layout of the factors of a program (`model`), `ties` finds those that repeat
each other, `integer` chooses. What things cost is given as values: nothing here knows of machines or networks.
"""
