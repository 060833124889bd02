"""The commands other than a launch: lookups, lessons, runs and their reports, template, wrap.

In: the words after the command. Out: text or JSON on the terminal, and an exit code.
"""
