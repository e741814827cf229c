"""Programs of the builder, run: the client of XLA's first edition, and the builder that knows one."""
