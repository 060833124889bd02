"""Everything that is known of a framework without running it, one module each.

In: nothing. Out: rows of facts, by `registry`.
"""
