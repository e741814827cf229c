"""Visualization: `spmd.view`'s page. Its data is built from the compiler's objects, then drawn by scripts."""
