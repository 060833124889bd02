"""Faults that raise no error: one module a sign, each of pure functions over plain values.

In: numbers, names and digests that guards have collected in a worker. Out: findings.
"""
