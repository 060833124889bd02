"""Reads the user's script without running it: flags, imports, lines related to a failure.

In: a `LaunchRequest` and the script's source. Out: a `Script`, ordered imports, source locations.
"""
