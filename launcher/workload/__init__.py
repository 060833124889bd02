"""Reads the training from the user's script, its arguments and model.

In: a `LaunchRequest`. Out: a `Workload` with the origin of every value. Nothing is run.
"""
