"""The passes, each ir -> ir.

Here belongs one file a pass, and what passes share to rewrite blocks. Their order stands in pipeline/passes.py.
"""
