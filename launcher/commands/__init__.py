"""The commands beside a launch: diagnose, catalogue, explain, hardware, template, wrap.

In: the words behind the command. Out: text or JSON on the terminal, and an exit code.
"""
