"""A run as one HTML page, with words and plots.

In: a run directory. Out: an HTML document that loads nothing.
"""
