"""The command line: options of torchrun, deepspeed and safe-launch.

In: argv and PET_* variables. Out: a `LaunchRequest`, or a usage error.
"""
