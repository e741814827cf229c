"""`spmd.autoshard`: searches shardings by partitioner.search, and partitions and predicts the candidates."""
