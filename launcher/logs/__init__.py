"""Diagnoses the logs of a finished run of any launcher.

In: log files. Out: the root cause, or that the training succeeded, or that the log is incomplete.
"""
