"""Silent training faults: one module per symptom, of pure functions over plain values.

In: numbers, names and digests collected by guards in a worker. Out: findings.
"""
