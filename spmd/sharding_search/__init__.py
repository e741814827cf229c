"""`spmd.autoshard`: the search of partitioner.search, with layouts that are partitioned and predicted."""
