"""Back ends, one folder each; native.py has the table of those that compile, and their protocol.

Nothing outside imports the internals of a native back end.
"""
