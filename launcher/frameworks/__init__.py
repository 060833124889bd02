"""Everything that is known of a framework without running it, one module each.

In: a `Script`. Out: rows of facts, by `registry`; statements on settings and facts, each with a
source.
"""
