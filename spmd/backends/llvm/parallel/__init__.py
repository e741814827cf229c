"""Work of one unit shared among threads: the functions that run its tasks, and the threads that call them.

Here belongs what concerns threads of one process. How a unit is cut is decided in spmd.compiler.schedule; processes
belong to collectives.
"""
