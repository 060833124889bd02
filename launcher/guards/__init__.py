"""Guards: apply the plan inside a worker by wrapping framework functions.

In: the plan's changes, and each framework module on import. Out: wrapped functions that enforce
the changes, and observations of the settings in force.
"""
