"""The loop of a run: plan, launch, diagnose, learn, launch again; on one node or many.

In: a request, a `Workload`, a `Hardware`, the catalogue. Out: the exit code of the run.
"""
