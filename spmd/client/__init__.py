"""Execution of the builder's programs: the client of XLA's first edition, and the builder bound to one."""
