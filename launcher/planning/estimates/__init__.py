"""Estimates a candidate's memory and time per rank, from formulas with sources.

In: sizes of the model, preset, number of ranks. Out: bytes by component, relative step times.
"""
