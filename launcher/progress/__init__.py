"""The progress of each rank of a node, on a small board in shared memory.

In: the marks of a worker's guards. Out: a `RankProgress` for every rank, for hang
detection, stragglers, throughput and `safe-launch status`.
"""
