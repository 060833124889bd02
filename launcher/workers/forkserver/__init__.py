"""The fork server: a process that has run the script's imports and forks workers.

In: the script's imports, orders for workers. Out: process ids, or why no worker can be forked.
"""
