"""Many nodes: how the launchers of one job find each other, compare what they have, and talk.

In: a `Placement` and what each node has. Out: connections, typed messages, the hardware all share.
"""
