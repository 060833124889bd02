"""Silent training faults: a module for each kind, of pure functions over plain values.

In: numbers, names and digests collected by guards in a worker. Out: findings.
"""
