"""Reports on plans, failures and the end of a run.

In: plans, findings, outcomes. Out: rows of text, the run summary, a pod's status.
"""
