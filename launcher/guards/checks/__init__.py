"""The guards that look for what trains wrongly: they see values, which `launcher/checks/` judges.

Nothing here waits: no collective, no synchronization with a device, no answer from the launcher.
"""
