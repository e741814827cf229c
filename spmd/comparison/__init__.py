"""Comparison of two programs, or of one under two back ends, value by value: the first difference, and its size.

This package observes values of programs and finds which correspond. Running them is the runtime's part.
"""
