"""The user's script, read and never run: its flags, its imports, the lines a failure is about.

In: a `LaunchRequest` and the script's source. Out: a `Script`, imports in order, places in files.
"""
