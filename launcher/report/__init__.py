"""Plans, failures and endings in words.

In: plans, findings, outcomes. Out: rows of text, the run summary, a pod's status.
"""
