"""The user's script, read but never run: its flags, its imports, the lines that a failure is about.

In: a `LaunchRequest` and the script's source. Out: a `Script`, imports in order, places in files.
"""
