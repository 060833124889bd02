"""What each vendor's own tool says of the devices on this host, without torch.

In: the environment and the vendor's library or command. Out: a `Device` for each
that this job may use.
"""
