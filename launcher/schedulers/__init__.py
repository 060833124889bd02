"""The place of this launcher in its job, by torchrun's options, Slurm, MPI or Kubernetes.

In: options and environment variables. Out: a `Placement`: number of nodes, own rank, node 0.
"""
