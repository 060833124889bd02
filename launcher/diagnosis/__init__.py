"""Finds the root cause of a failed attempt, and its consequences for the next plan.

In: an `Attempt` and its outcome. Out: a `Finding`, facts and constraints for the next plan.
"""
