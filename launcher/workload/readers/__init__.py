"""The readers: how each framework says what it will train, read without running the script.

In: a `Script`. Out: statements on settings and facts, each with where it was read.
"""
