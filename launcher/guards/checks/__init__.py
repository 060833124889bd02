"""Guards that collect values of a running training, which `launcher/checks/` judges.

Nothing here waits: no collective, no synchronization with a device, no answer from the launcher.

In: optimizers, batches, models and saves, as frameworks have them. Out: findings, and digests that
node 0 compares.
"""
