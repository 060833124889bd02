"""Readers of what the arguments of many frameworks and scripts have in common.

In: a `Script`. Out: statements on settings and facts, each with a source.
"""
