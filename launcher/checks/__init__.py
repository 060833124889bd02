"""What trains wrongly without an error: one module a sign, each a pure function over plain values.

In: numbers, names and digests that the guards have seen in a worker. Out: findings.
"""
