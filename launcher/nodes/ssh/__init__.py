"""A launch over the hosts of a hostfile, started from this machine over ssh.

In: the hosts chosen and the command line. Out: one launcher on each host, and one exit code.
"""
