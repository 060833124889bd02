"""Diagnoses a run without progress: each rank's position, and the ranks the others wait for.

In: the ranks' processes, queried from outside, and recorders' dumps. Out: a `HangReport`.
"""
