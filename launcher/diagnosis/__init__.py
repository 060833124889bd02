"""Finds the root cause of a failed attempt, and draws conclusions from it.

In: an `Attempt` and its outcome. Out: a `Finding`, facts and constraints for the next plan.
"""
