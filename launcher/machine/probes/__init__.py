"""Probes: this host's devices, from each vendor's tool, without torch.

In: the environment and the vendor's library or command. Out: a `Device` per device available to
this job.
"""
