"""The shape of a model, without any value of its weights.

In: config.json, and the headers of safetensors, what a worker has described, or what the installed
transformers builds. Out: a `Model`, its weights and layers.
"""
