"""The search for the preset nearest to what was asked that fits and that nothing forbids.

In: request, `Workload`, `Hardware` and constraints. Out: a `Plan`, or a `NoPlan` that says why.
"""
