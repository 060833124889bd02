"""What is going to be trained: the user's script, arguments, configuration files and model.

In: a `LaunchRequest`. Out: a `Workload`, in which every value has its origin; nothing is ever run.
"""
