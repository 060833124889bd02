"""Lessons of corrected runs, kept for the next launch of the same script.

In: a run that succeeded after a correction; what is read of a script before its launch. Out: facts
and constraints for its first plan, while nothing has changed that they depend on.
"""
