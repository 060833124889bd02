"""The command line: torchrun's, deepspeed's and our own options.

In: argv and PET_* variables. Out: the parts of a `LaunchRequest`, or a usage error.
"""
