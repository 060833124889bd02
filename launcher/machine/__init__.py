"""This machine's accelerators with profiles, memory and cores.

In: the vendors' tools, /proc, cgroups and `hardware/**/*.yaml`. Out: a `Hardware`.
"""
