"""Recommends a next step for failures without a catalogue entry, by facts in their logs.

In: the record of a failure. Out: a `Step` from the first general rule that applies.
"""
