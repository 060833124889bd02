"""From the records of a failed attempt to its root cause, and to what is known from now on.

In: an `Attempt` and its outcome. Out: a `Finding`, facts and constraints for the next plan.
"""
