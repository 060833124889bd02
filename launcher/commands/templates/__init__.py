"""The files of `scripts/` for a cluster, filled in for the job at hand.

In: the job's size and command line. Out: a Slurm script or Kubernetes manifests.
"""
