"""The devices on this host, as reported by each vendor's own tool, without torch.

In: the environment and the vendor's library or command. Out: a `Device` for each
that this job may use.
"""
