"""A run as one HTML page: what happened, in words and plots.

In: a run directory. Out: an HTML document that loads nothing.
"""
