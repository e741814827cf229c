"""Native regions as readable C: loop nests only, one point at a time.

Anything else (matrix products, control flow, calls) is left to the next back end.
"""
