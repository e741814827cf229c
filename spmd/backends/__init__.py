"""What runs a schedule: a back end a folder, and in native.py the table of those that compile, with what they offer.

Nothing outside imports the inside of a folder of native code.
"""
