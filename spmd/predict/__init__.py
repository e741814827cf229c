"""What a program would take on machines one does not have, and what the one at hand does in what time."""
