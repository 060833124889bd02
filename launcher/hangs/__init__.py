"""A run that stops moving: where each rank stands, and which of them the others wait for.

In: the ranks' processes, asked without their help, and recorders' dumps. Out: a `HangReport`.
"""
