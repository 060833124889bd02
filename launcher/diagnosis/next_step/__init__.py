"""What to do next about a failure that no entry of the catalogue names, by the facts in its log.

In: the record of a failure. Out: a `Step`, by the first of a few general rules that applies.
"""
