"""The guards that look for what trains wrongly: they see values, which `launcher/checks/` judges.

Nothing here waits: no collective, no synchronization with a device, no answer from the launcher.

In: optimizers, batches, models and saves, as frameworks have them. Out: findings, and digests that
node 0 compares.
"""
