"""The next step for a failure without an entry in the catalogue, by the facts in its log.

In: the record of a failure. Out: a `Step`, by the first of a few general rules that applies.
"""
