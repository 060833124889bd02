"""The command line: a launch, and the commands of `registry`, a module each.

In: argv. Out: a launch, text or JSON on the terminal, and an exit code.
"""
