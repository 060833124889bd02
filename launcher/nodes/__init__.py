"""Many nodes: how the launchers of a job find each other, compare their machines, and communicate.

In: a `Placement`, each node's `Join`. Out: connections, typed messages, the common hardware.
"""
