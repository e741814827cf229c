"""Where values lie while native code runs: buffers, their addresses, and updates in place.

Here belongs what assigns memory. The loads and stores themselves stand in loops.
"""
