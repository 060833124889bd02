"""The shape of a model, from its configuration and the headers of its files, without its weights.

To teach safe-launch an architecture, add it to a table in `architectures.py` or its neighbours.
"""
