"""The schedule of a block: fusion, loop nests, vector lanes, buffers and tasks.

Back ends emit code from it. Target instructions and Python's calls belong to them.
"""
