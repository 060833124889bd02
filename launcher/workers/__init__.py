"""Starts, watches and stops the workers of an attempt on this node, and passes on their output.

In: an order to start workers. Out: every rank's records, exit and observations.
"""
