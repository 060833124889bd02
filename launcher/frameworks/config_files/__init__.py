"""Configuration files of DeepSpeed and accelerate.

In: a path. Out: typed values, or an error that names file, line and key.
"""
