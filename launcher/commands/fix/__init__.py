"""The command `fix`: what makes a run's corrections last, as a patch of the user's own files.

In: the edits that a run has left in its directory. Out: a diff, or the files with it.
"""
