"""Many nodes: how the launchers of one job find each other, compare what they have, and talk.

In: a `Placement`, each node's `Join`. Out: connections, typed messages, the common hardware.
"""
