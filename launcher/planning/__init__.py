"""The search for the nearest preset to what was asked for that fits and isn't forbidden.

In: request, `Workload`, `Hardware` and constraints. Out: a `Plan`, or a `NoPlan` with the reasons.
"""
