"""A worker's reports: the channel to its launcher, observations, failures.

In: live exceptions, frameworks' objects. Out: a `FailureRecord` and observed facts.
"""
