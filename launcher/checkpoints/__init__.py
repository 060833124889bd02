"""A job's checkpoints: completeness, and the choice of one to resume from.

In: the workers' save folders. Out: the checkpoint for the next attempt, or the reason for none.
"""
