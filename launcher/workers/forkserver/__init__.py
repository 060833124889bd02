"""The fork server: a process that has imported what the script imports, and forks workers.

In: the script's imports, orders for workers. Out: process ids, or why no worker can be forked.
"""
