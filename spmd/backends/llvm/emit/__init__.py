"""LLVM's text as it is written: functions, blocks, scalar expressions, and what is outlined once a process.

Here belongs what every writer of native code uses. How loops, reductions or products are arranged does not.
"""
