"""The commands other than a launch: diagnose, catalogue, explain, hardware, template, wrap.

In: the words after the command. Out: text or JSON on the terminal, and an exit code.
"""
