"""The workers of one attempt on this node: started, watched, stopped, their output passed on.

In: an order of what to start. Out: records, exits and observations of every rank.
"""
