"""Readers of arguments that many frameworks and scripts share.

In: a `Script`. Out: statements on settings and facts, each with a source.
"""
