"""This machine: which accelerators it has, what their profiles say, its memory and its cores.

In: the vendors' own tools, /proc, cgroups and `hardware/**/*.yaml`. Out: a `Hardware`.
"""
