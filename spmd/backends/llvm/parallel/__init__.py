"""Work of one unit shared among threads: how it is cut into tasks, and the threads that run them.

Here belongs what concerns threads of one process. Processes belong to collectives.
"""
