"""The passes, each from IR to IR: one file per pass, and helpers to rewrite blocks.

Their order is in pipeline/passes.py.
"""
