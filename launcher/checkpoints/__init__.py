"""The checkpoints that a job has written: which are complete, and which can be resumed from.

In: the folders that workers save to. Out: where the next attempt resumes, or why it can't.
"""
