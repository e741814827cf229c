"""What runs a schedule: a back end a folder."""
