"""This machine: its accelerators and their profiles, its memory and its cores.

In: the vendors' own tools, /proc, cgroups and `hardware/**/*.yaml`. Out: a `Hardware`.
"""
