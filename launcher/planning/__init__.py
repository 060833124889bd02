"""Searches for the preset nearest to the requested one that fits and isn't forbidden.

In: request, `Workload`, `Hardware` and constraints. Out: a `Plan`, or a `NoPlan` with reasons.
"""
