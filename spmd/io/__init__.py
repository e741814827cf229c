"""Programs and arrays, read from files and objects and written to them.

Here belongs what recognizes a format and hands on to its reader. The readers stand in syntax, artifacts and builder.
"""
