"""Elementwise ops as expressions over scalar primitives: their meaning, as data."""
