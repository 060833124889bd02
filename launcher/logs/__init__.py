"""The same diagnosis from the logs of any launcher's run, after the fact.

In: log files. Out: the root cause, or that the training ended well, or that the log breaks off.
"""
