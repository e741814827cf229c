"""Programs and arrays, read from files and objects and written to them.

This package recognizes a format and calls its reader. The readers are in syntax, artifacts and builder.
"""
