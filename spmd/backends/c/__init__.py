"""Native regions as C that one can read: loop nests alone, one point at a time.

What is no loop nest (products of matrices, control flow, calls) does not belong here: it is left to the next back end.
"""
