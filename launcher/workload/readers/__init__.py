"""The readers: each reads what a framework will train, without running the script.

In: a `Script`. Out: statements on settings and facts, each with its source.
"""
