"""Guards that collect values of a running training for `launcher/checks/` to judge.

Nothing here waits for a collective, a device or the launcher.

In: optimizers, batches, models and saves of the frameworks. Out: findings, and digests that
node 0 compares.
"""
