"""What each process records of its communications, and what these records say: calls, the flight recorder, diagnosis.

The modules call no MPI: ``collectives.mpi.watch`` sends records between ranks.
"""
