"""Two programs, or one under two back ends, compared value by value: where they first part, and by how much.

Here belongs what observes values of programs and says which correspond. How a program runs is the runtime's.
"""
