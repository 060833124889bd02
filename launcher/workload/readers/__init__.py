"""Readers determine a framework's training without running the script.

In: a `Script`. Out: statements on settings and facts, each with a source.
"""
