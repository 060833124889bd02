"""The workers of one attempt on this node: started, watched, stopped, their output passed on.

In: an order to start workers. Out: every rank's records, exit and observations.
"""
