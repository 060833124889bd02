"""This launcher's place in its job, by torchrun's options, Slurm, MPI or Kubernetes.

In: options and environment variables. Out: a `Placement`: number of nodes, own rank, node 0.
"""
