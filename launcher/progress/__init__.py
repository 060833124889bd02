"""How far each rank of a node has come: a small board in shared memory.

In: what the guards of a worker mark as it happens. Out: a `RankProgress` for every rank, for hang
detection, stragglers, throughput and `safe-launch status`.
"""
