"""The shape of a model, from its configuration and the headers of its files, without its weights.

In: config.json, safetensors headers. Out: a `Model`, its weights and layers.
A new architecture is a line in a table of `architectures*.py`.
"""
