"""The command line: torchrun's and deepspeed's options and our own.

In: argv and PET_* variables. Out: the parts of a `LaunchRequest`, or a usage error.
"""
