"""The values that flow through a launch: what was asked, what is known, what is decided.

In: nothing but the standard library. Out: frozen dataclasses and enums for every other folder.
"""
