"""A worker's reports: the channel to its launcher, its observations, its failure.

In: live exceptions, frameworks' objects. Out: a `FailureRecord` and observed facts.
"""
