"""The values that flow through a launch: the request, the knowledge, the decision.

In: nothing but the standard library. Out: frozen dataclasses and enums for every other folder.
"""
