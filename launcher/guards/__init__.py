"""The guards, which apply a plan inside a worker, at the boundary of each framework.

In: the plan's changes, and a framework's module as it is imported. Out: wrapped functions that
enforce the changes, and observations of what is really in force.
"""
